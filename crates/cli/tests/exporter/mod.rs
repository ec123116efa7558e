//! An exporter that serves, and those who scrape it.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::Running;
use crate::tool::faultless;

/// Longest time that anything may take here.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An exporter that serves, at an address of the kernel's choice.
pub fn serve(words: &[&str]) -> (Running, String) {
    let (exporter, address, mut said) = serving(faultless(&[&SERVES, words].concat()));
    // Whoever reads no more must not end it.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    (exporter, address)
}

pub const SERVES: [&str; 5] = ["export", "--listen", "127.0.0.1:0", "--interval", "50ms"];

/// The exporter, where it listens, and what it says after that.
pub fn serving(mut command: Command) -> (Running, String, BufReader<ChildStderr>) {
    let mut exporter = Running::start(command.stderr(Stdio::piped()));
    let mut said = BufReader::new(exporter.0.stderr.take().unwrap());
    let address = said.by_ref().lines().map(Result::unwrap).find_map(|line| {
        Some(line.strip_prefix("faultless: metrics at http://")?.strip_suffix("/metrics")?.to_owned())
    });
    (exporter, address.expect("it says where it listens"), said)
}

/// The head and the body of the answer to one request.
pub fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub fn scrape(address: &str) -> String {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    body
}

/// The value of a metric, if it is there.
pub fn value(text: &str, metric: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok())
}

/// Scrapes until a metric satisfies a condition.
pub fn wait_for(address: &str, metric: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    value(&wait_until(address, |text| value(text, metric).is_some_and(&is_right)), metric).unwrap()
}

/// Scrapes until the page satisfies a condition.
pub fn wait_until(address: &str, is_right: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = scrape(address);
        if is_right(&text) {
            return text;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
