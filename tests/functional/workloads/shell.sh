# SPDX-License-Identifier: Apache-2.0
# Runs inside, by bash: what scripts do. What it says is compared with shell.expected.
set -e
seq 1 10000 | sort -rn | head -1
cat <<TEXT
here $((6 * 7))
TEXT
cat <<< 'a here-string'
diff <(printf 'a\nb\n') <(printf 'a\nc\n') || echo "they differ: $?"
trap 'echo trapped' USR1
kill -USR1 $$
sleep 0.05 &
wait $!
echo "waited: $?"
(exit 3) || echo "a subshell ended with $?"
(ulimit -n 64; ulimit -n)
ulimit -c
coproc ECHO { cat; }
echo "to a coprocess" >&"${ECHO[1]}"
read -r line <&"${ECHO[0]}"
echo "$line and back"
eval "exec ${ECHO[1]}>&-"
timeout 0.1 sleep 10 || echo "timed out: $?"
mkfifo pipe
echo "through a pipe" > pipe &
cat pipe
flock lock -c 'echo locked'
seq 8 | xargs -P 4 -n 1 sh -c 'echo line $0' | sort
nohup echo nohup 2>/dev/null
setsid -w echo setsid
echo $(($(nice -n 3 nice) - $(nice)))
env -i /bin/sh -c 'echo ${HOME:-no home}'
set -o pipefail
false | true || echo "pipefail: $?"
for i in 1 2 3; do (echo "$i" > "part$i") & done
wait
cat part1 part2 part3 | tr '\n' ' '
echo
mkdir -p a/b c
echo text > a/b/f
mv a/b/f c/
mv c "$TMPDIR/moved"
mv "$TMPDIR/moved" back
cat back/f
ln back/f hard
ln -s hard soft
cat soft
tar cf - back hard | tar tf - | sort
dd if=/dev/zero of=sparse bs=1 count=1 seek=10M 2>/dev/null
stat -c %s sparse
touch -d 2001-01-01T00:00:00Z old
stat -c %Y old
chmod 4711 old
stat -c %a old
find . -name 'part*' -delete
find . -name 'part*' | wc -l
echo "$(mktemp)" | sed "s|^$TMPDIR/tmp\..*|a temporary file|"
grep nothing /etc/passwd || echo "not found: $?"
sed -i s/text/changed/ back/f
cat hard
awk 'BEGIN { printf "%.2f\n", 22 / 7 }'
printf 'b\na\n' | sort -o sorted && cat sorted
tee copy <<< tee
test -t 0 || echo "no terminal"
sh -c 'kill -TERM $$' || echo "terminated: $?"
trap 'echo goodbye' EXIT
