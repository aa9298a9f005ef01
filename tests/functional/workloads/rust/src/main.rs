// SPDX-License-Identifier: Apache-2.0
use std::io::{Read, Write};

fn talk() -> std::io::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let client = std::thread::spawn(move || {
        let mut text = String::new();
        std::net::TcpStream::connect(address)?.read_to_string(&mut text)?;
        Ok(text)
    });
    listener.accept()?.0.write_all(b"over loopback")?;
    client.join().unwrap()
}

fn main() {
    println!("hello {}", talk().unwrap());
}

#[test]
fn talks() {
    assert_eq!(talk().unwrap(), "over loopback");
}
