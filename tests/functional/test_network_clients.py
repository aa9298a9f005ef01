# SPDX-License-Identifier: Apache-2.0
"""The managed network with package managers, and with the run times and libraries that have a resolver or an HTTP client of
their own. Servers, certificates and packages are the test's."""

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tarfile
import types
import unittest
import zipfile

import tap
import wire
from managed import NameCase, needs
from proxy_front import read_head
from server import PYTHON

HOST = 'a.test'
ANSWER = 'GET /%s HTTP/1.1|a.test|0'

# Prints the address of each name, or why there is none; then GET / of the first, if its address is one of a name.
RESOLVE_C = r'''
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found, *first = NULL;
    char text[4096];
    ssize_t n;
    for (int i = 1; i < argc; i++) {
        const int r = getaddrinfo(argv[i], "80", &hints, &found);
        if (r == 0) {
            getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
            first = i == 1 ? found : first;
        }
        printf("%s\n", r == 0 ? text : r == EAI_NONAME ? "none" : gai_strerror(r));
    }
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (first == NULL || connect(fd, first->ai_addr, first->ai_addrlen) < 0)
        return 1;
    n = snprintf(text, sizeof text, "GET /c HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[1]);
    if (write(fd, text, n) != n)
        return 1;
    fflush(stdout);
    shutdown(fd, SHUT_WR);
    while ((n = read(fd, text, sizeof text)) > 0)
        if (write(1, text, n) != n)
            return 1;
    return 0;
}
'''

RESOLVE_GO = '''
package main
import ("errors"; "fmt"; "io"; "net"; "net/http"; "os")
func main() {
    for _, name := range os.Args[2:] {
        found, err := net.LookupHost(name)
        var problem *net.DNSError
        if errors.As(err, &problem) && problem.IsNotFound { fmt.Println("none")
        } else if err != nil { fmt.Println(err) } else { fmt.Println(found[0]) }
    }
    for _, url := range []string{"http://a.test/go", "https://a.test/go"} {
        answer, err := http.Get(url)
        if err != nil { panic(err) }
        text, _ := io.ReadAll(answer.Body)
        fmt.Println(string(text))
    }
}
'''

GET_JAVA = '''
import java.net.*;
import java.net.http.*;
public class Get {
    public static void main(String[] args) throws Exception {
        for (String scheme : new String[] {"http", "https"}) {
            System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(
                URI.create(scheme + "://a.test/new")).build(), HttpResponse.BodyHandlers.ofString()).body());
            System.out.println(new String(new URL(scheme + "://a.test/old").openStream().readAllBytes()));
        }
    }
}
'''

GRPC_SERVER = '''
import sys
from concurrent import futures
import grpc
service = grpc.method_handlers_generic_handler('t.Echo', {
    'Say': grpc.unary_unary_rpc_method_handler(lambda message, _: b'said ' + message),
    'Stream': grpc.stream_stream_rpc_method_handler(lambda messages, _: (m[::-1] for m in messages))})
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((service,))
cert, key = (open(path, 'rb').read() for path in sys.argv[1:3])
print(server.add_secure_port('127.0.0.1:0', grpc.ssl_server_credentials([(key, cert)])), flush=True)
server.start()
sys.stdin.read()
server.stop(0).wait()
'''

GRPC_CLIENT = '''
import sys
import grpc
cert = open(sys.argv[1], 'rb').read()
with grpc.secure_channel('a.test:443', grpc.ssl_channel_credentials(cert)) as channel:
    print(channel.unary_unary('/t.Echo/Say')(b'hello', timeout=60).decode())
    messages = [b'%04d' % i + bytes(5000) for i in range(1000)]
    print([m[::-1] for m in channel.stream_stream('/t.Echo/Stream')(iter(messages), timeout=60)] == messages)
with grpc.secure_channel('b.test:443', grpc.ssl_channel_credentials(cert)) as channel:
    try:
        channel.unary_unary('/t.Echo/Say')(b'hello', timeout=60)
    except grpc.RpcError as e:
        print(e.code().name)
'''


def pages(served):
    """A web server for files: path -> bytes."""
    def serve(conn):
        rest = b''
        while True:
            text, rest = read_head(conn, rest)
            if text is None:
                return
            path = text.split()[1].split('?')[0]
            body = served.get(path)
            conn.sendall(b'HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s' % (
                b'404 Not Found' if body is None else b'200 OK',
                b'text/html' if path.endswith('/') else b'application/octet-stream', len(body or b''), body or b''))
    return serve


def python_with(module):
    """A Python that has the module: ours or Debian's; None if there is none."""
    if importlib.util.find_spec(module):
        return PYTHON
    other = '/usr/bin/python3'
    has = os.path.exists(other) and subprocess.run([other, '-c', 'import ' + module], capture_output=True).returncode == 0
    return other if has else None


class Packages(NameCase):
    """15 to 17 and 36: by name at port 443, and by variables at a port that has no listener."""

    def reach(self, served, by_variables):
        """Serves these files; returns the URL and the file of the certificate."""
        server, cert = self.tls(pages(served), HOST)
        self.name(HOST, {8443 if by_variables else 443: server})
        if by_variables:
            self.WITHOUT = []
        return 'https://a.test:8443/' if by_variables else 'https://a.test/', cert

    def npm(self, by_variables):
        package = self.base + '/package'
        os.mkdir(package)
        with open(package + '/package.json', 'w') as f:
            json.dump({'name': 'thing', 'version': '1.0.0'}, f)
        with open(package + '/index.js', 'w') as f:
            f.write('module.exports = 42\n')
        with tarfile.open(self.base + '/thing.tgz', 'w:gz') as tar:
            tar.add(package, 'package')
        with open(self.base + '/thing.tgz', 'rb') as f:
            data = f.read()
        served = {'/thing.tgz': data}
        url, cert = self.reach(served, by_variables)
        served['/thing'] = json.dumps({'name': 'thing', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': {
            'name': 'thing', 'version': '1.0.0', 'dist': {
                'tarball': url + 'thing.tgz',
                'integrity': 'sha512-' + base64.b64encode(hashlib.sha512(data).digest()).decode()}}}}).encode()
        self.env.update(NPM_CONFIG_CAFILE=cert, NPM_CONFIG_CACHE=self.work + '/cache')
        done = self.run_inside('sh', '-c', 'npm install --registry "$0" --no-audit --no-fund --no-update-notifier thing >&2 && '
                               'node -p "require(\'thing\')"', url)
        self.assertEqual(done.stdout, '42\n')

    @needs('npm', 'node', 'openssl')
    def test_15_npm(self):
        self.npm(False)

    @tap.long
    @needs('npm', 'node', 'openssl')
    def test_36_npm_with_variables(self):
        self.npm(True)

    def pip(self, by_variables):
        wheel = 'thing-1.0-py3-none-any.whl'
        info = {'thing.py': 'answer = 42\n',
                'thing-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n',
                'thing-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
                'thing-1.0.dist-info/RECORD': 'thing.py,,\nthing-1.0.dist-info/METADATA,,\nthing-1.0.dist-info/WHEEL,,\n'
                                              'thing-1.0.dist-info/RECORD,,\n'}
        with zipfile.ZipFile(self.base + '/' + wheel, 'w') as z:
            for name, text in info.items():
                z.writestr(name, text)
        with open(self.base + '/' + wheel, 'rb') as f:
            data = f.read()
        page = b'<html><body><a href="/files/%s">%s</a></body></html>' % (wheel.encode(), wheel.encode())
        url, cert = self.reach({'/simple/thing/': page, '/files/' + wheel: data}, by_variables)
        done = self.run_inside('sh', '-c', '%s -m pip install -q --disable-pip-version-check --no-cache-dir --no-compile --cert '
                               '"$0" --index-url "$1"simple/ --target here thing >&2 && cd here && %s -c '
                               '"import thing; print(thing.answer)"' % (PYTHON, PYTHON), cert, url)
        self.assertEqual(done.stdout, '42\n')

    @unittest.skipUnless(importlib.util.find_spec('pip'), 'not installed: pip')
    @needs('openssl')
    def test_16_pip(self):
        self.pip(False)

    @tap.long
    @unittest.skipUnless(importlib.util.find_spec('pip'), 'not installed: pip')
    @needs('openssl')
    def test_36_pip_with_variables(self):
        self.pip(True)

    @needs('apt-get')
    def test_17_apt(self):
        release = b'Origin: t\nSuite: stable\nCodename: stable\nComponents: main\nArchitectures: amd64\nSHA256:\n'
        release += b' %s 0 main/binary-amd64/Packages\n' % hashlib.sha256(b'').hexdigest().encode()
        seen = pages({'/debian/dists/stable/Release': release, '/debian/dists/stable/main/binary-amd64/Packages': b''})
        server = self.serve(seen)
        self.name(HOST, {80: server})
        place = self.work + '/apt'
        for name in ('lists/partial', 'cache/archives/partial', 'state'):
            os.makedirs(place + '/' + name)
        with open(place + '/sources', 'w') as f:
            f.write('deb [trusted=yes arch=amd64] http://a.test/debian stable main\n')
        done = self.run_inside('apt-get', '-o', 'Dir::State=' + place + '/state', '-o', 'Dir::State::Lists=' + place + '/lists',
                               '-o', 'Dir::Cache=' + place + '/cache', '-o', 'Dir::Etc::SourceList=' + place + '/sources',
                               '-o', 'Dir::Etc::SourceParts=-', '-o', 'Dir::State::status=/dev/null', '-o',
                               'APT::Sandbox::User=', '-o', 'Acquire::http::Proxy=DIRECT', 'update')
        self.assertIn('http://a.test/debian', done.stdout)
        self.assertNotIn('Err:', done.stdout)
        self.assertNotEqual(server.connections, [])


@tap.long
class Languages(NameCase):
    @needs('java', 'keytool', 'openssl')
    def test_20_jvm(self):
        """Both clients, with what they do by themselves: HttpClient offers HTTP/2 in an Upgrade field."""
        cert = self.web()
        subprocess.run(['keytool', '-importcert', '-noprompt', '-alias', 'a', '-file', cert, '-keystore', self.work + '/trust',
                        '-storepass', 'changeit'], check=True, capture_output=True)
        with open(self.work + '/Get.java', 'w') as f:
            f.write(GET_JAVA)
        done = self.run_inside('java', '-Djavax.net.ssl.trustStore=trust', '-Djavax.net.ssl.trustStorePassword=changeit', 'Get.java')
        self.assertEqual(done.stdout.split('\n')[:4], [ANSWER % p for p in ('new', 'old', 'new', 'old')])

    @needs('go', 'openssl')
    def test_21_go(self):
        self.env.update(SSL_CERT_FILE=self.web(), GOCACHE=self.work + '/cache', GO111MODULE='off')
        with open(self.work + '/get.go', 'w') as f:
            f.write(RESOLVE_GO)
        self.run_inside('go', 'build', 'get.go')
        for resolver in ('go', 'cgo'):
            self.env['GODEBUG'] = 'netdns=' + resolver
            self.assertEqual(self.run_inside('./get', resolver).stdout, (ANSWER % 'go' + '\n') * 2)

    def build(self, compiler, *options):
        with open(self.work + '/resolve.c', 'w') as f:
            f.write(RESOLVE_C)
        program = self.work + '/resolve-' + compiler
        subprocess.run([compiler, '-O', *options, '-o', program, self.work + '/resolve.c'], check=True, capture_output=True)
        return program

    @needs('musl-gcc')
    def test_22_musl(self):
        self.web()
        done = self.run_inside(self.build('musl-gcc', '-static'), HOST)
        self.assertTrue(done.stdout.startswith('127.64.'), done.stdout)
        self.assertTrue(done.stdout.endswith(ANSWER % 'c'), done.stdout)

    @needs('busybox')
    def test_22_static_busybox(self):
        self.web()
        self.assertEqual(self.run_inside(shutil.which('busybox'), 'wget', '-qO-', 'http://a.test/b').stdout, ANSWER % 'b')

    @needs('openssl')
    def test_25_grpc(self):
        python = python_with('grpc')
        if python is None:
            self.skipTest('not installed: grpc of Python')
        cert, key = self.certificate(HOST, 'b.test')
        server = subprocess.Popen([python, '-c', GRPC_SERVER, cert, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def stop():
            server.stdin.close()
            server.wait(wire.DEADLINE)
            server.stdout.close()
        self.addCleanup(stop)
        self.name(HOST, {443: types.SimpleNamespace(port=int(server.stdout.readline()))})
        self.name('b.test')
        done = self.run_inside(python, '-c', GRPC_CLIENT, cert)
        self.assertEqual(done.stdout.split('\n')[:3], ['said hello', 'True', 'UNAVAILABLE'])

    # Names, and what every resolver says of them: the beginning of an address, or none.
    NAMES = {HOST: '127.64.', 'gone.test': 'none', 'other.example': '127.64.', 'localhost': '', 'single': 'none',
             'x.internal': 'none'}

    def compare(self, argv):
        said = self.run_inside(*argv, *self.NAMES, allow=[HOST, 'gone.test']).stdout.split('\n')
        for (name, want), got in zip(self.NAMES.items(), said):
            if name == 'localhost':
                self.assertIn(got, ('127.0.0.1', '::1'))
            else:
                self.assertTrue(got.startswith(want), (argv[0], name, got))

    def test_71_resolvers(self):
        """glibc, musl, Go, and c-ares in Node read the same in the answers."""
        self.env['SSL_CERT_FILE'] = self.web()
        self.table.append('gone.test=-')
        missing = [p for p in ('musl-gcc', 'gcc', 'go', 'node') if shutil.which(p) is None]
        if missing:
            self.skipTest('not installed: ' + ' '.join(missing))
        self.compare([self.build('gcc')])
        self.compare([self.build('musl-gcc', '-static')])
        with open(self.work + '/get.go', 'w') as f:
            f.write(RESOLVE_GO)
        self.env.update(GOCACHE=self.work + '/cache', GO111MODULE='off')
        self.run_inside('go', 'build', 'get.go')
        for resolver in ('go', 'cgo'):
            self.env['GODEBUG'] = 'netdns=' + resolver
            self.compare(['./get', resolver])
        self.compare(['node', '-e', '''
            (async () => {
                for (const name of process.argv.slice(1))
                    console.log(await require('dns').promises.resolve4(name).then(r => r[0], e => e.code === 'ENOTFOUND' ? 'none' : e.code));
            })();
        '''])


if __name__ == '__main__':
    tap.main()
