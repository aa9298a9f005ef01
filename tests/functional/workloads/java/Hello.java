// SPDX-License-Identifier: Apache-2.0
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.IntStream;

public class Hello {
    public static void main(String[] args) throws Exception {
        System.out.println("sum " + IntStream.range(0, 1000).parallel().sum());
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread client = new Thread(() -> {
                try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) {
                    s.getOutputStream().write(65);
                } catch (Exception e) {
                    System.out.println(e);
                }
            });
            client.start();
            System.out.println("byte " + server.accept().getInputStream().read());
            client.join();
        }
        Process child = new ProcessBuilder("sh", "-c", "exit 5").start();
        System.out.println("child " + child.waitFor());
        Path file = Files.createTempFile(Path.of("."), "work", ".txt");
        Files.writeString(file, "text");
        System.out.println("file " + Files.readString(file));
        try {
            System.out.println("host " + InetAddress.getLocalHost().getHostName());
        } catch (UnknownHostException e) {
            System.out.println("no host");
        }
    }
}
