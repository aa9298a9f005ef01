# bash completion of sallyport. All candidates come from `sallyport complete`.
_sallyport() {
    local line cut
    local -a words
    # Not COMP_WORDS: bash splits those at = and :, too.
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:COMP_POINT-1:1} == ' ' ]] && words+=('')
    # bash replaces $2 only, the part behind the last = or :
    cut=${words[${#words[@]} - 1]}
    cut=${cut%"$2"}
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        line=${line#"$cut"}
        [[ $line == *[[:space:]\'\"\\\$\&\;\(\)\<\>\|\*\?\`\!]* ]] && printf -v line %q "$line"
        COMPREPLY+=("$line")
    done < <("${words[0]/#\~/$HOME}" complete bash -- "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace
    return 0
}
complete -F _sallyport sallyport
