//! `faultless export` and those who scrape it, through the real program: many, slow ones, and what they cost.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod exporter;
mod place;
mod running;
mod tool;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use exporter::{PATIENCE, ask, scrape, serve, value, wait_until};
use place::Place;
use running::{Running, is_so_within, send};
use tool::{after, errors};

#[test]
fn who_asks_slowly_or_for_something_else_holds_nobody_up() {
    let (_exporter, address) = serve(&["--name", "nobody-of-this-name", "--heap", "0"]);
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET /metr").unwrap();
    let began = Instant::now();
    assert!(value(&scrape(&address), "faultless_exporter_cpu_seconds_total").is_some());
    assert!(began.elapsed() < Duration::from_secs(5), "the slow one's time has not come yet");
    for (request, status) in [
        ("GET /other HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\u{1}nonsense\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "200"),
    ] {
        let (head, _) = ask(&address, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
    }
    let (head, body) = ask(&address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head} {body}");
    // What nobody reads must not cost the answer.
    let (head, body) = ask(&address, &format!("GET /metrics HTTP/1.1\r\n\r\n{}", "x".repeat(100_000)));
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    slow.write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn who_asks_while_the_exporter_is_stopped_is_answered_when_it_goes_on() {
    let (exporter, address) = serve(&["--name", "nobody-of-this-name", "--heap", "0"]);
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET /metr").unwrap();
    // It has been taken when another that came later is answered.
    scrape(&address);
    send("STOP", exporter.pid());
    wait_until_stopped(&exporter);
    send("CONT", exporter.pid());
    scrape(&address);
    slow.write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn wait_until_stopped(process: &Running) {
    assert!(is_so_within(PATIENCE, || running::state(process.pid()) == Some('T')));
}

#[test]
fn who_scrapes_again_and_again_costs_no_memory() {
    const ASLEEP: usize = 300;
    let place = Place::new("scraped");
    let program = place.compile("asleep", ASLEEP_MANY, &[]);
    let crowd = Running::ready(Command::new(program).arg(ASLEEP.to_string()).stdin(Stdio::piped()));
    let words = ["--pid", &crowd.pid(), "--children", "--by", "process", "--heap", "0", "--pss", "0"];
    let (exporter, address) = serve(&words);
    wait_until(&address, |text| text.matches("faultless_threads{").count() > ASLEEP);
    let before = running::resident_kib(exporter.pid());
    let bytes = (0..32).map(|_| scrape(&address).len()).max().unwrap();
    let more = running::resident_kib(exporter.pid()).saturating_sub(before);
    // One page for all who ask; each of 16 threads had kept several times as much.
    assert!(more < 4 * bytes as u64 / 1024 + 1024, "{more} KiB for a page of {bytes} bytes");
}

#[test]
fn threads_that_answer_share_one_heap() {
    let (exporter, address) = serve(&["--name", "nobody-of-this-name", "--heap", "0"]);
    scrape(&address);
    // Each of 16 that writes a page now and then would keep it, in 64 MiB of addresses of its own.
    let addresses = running::kib(exporter.pid(), "VmSize:");
    assert!(addresses < 512 << 10, "{addresses} KiB");
}

/// Starts as many children as it is told, which end with its input.
const ASLEEP_MANY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    for (int n = atoi(words[count - 1]); n; n--) if (!fork()) return read(0, &n, 1) < 0;
    puts("ready");
    fflush(stdout);
    return read(0, &count, 1) < 0;
}"#;

#[test]
fn many_who_ask_at_once_are_all_answered() {
    let pid = std::process::id().to_string();
    let (_exporter, address) = serve(&["--pid", &pid]);
    let asked: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for mut stream in asked {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

#[test]
fn where_addresses_have_room_for_few_threads_fewer_answer() {
    let under = |kib: u64, words: &[&str]| after(&format!("ulimit -v {kib}"), words).output().unwrap();
    let starts = |kib: &u64| under(*kib, &["--version"]).status.success();
    let least = (1..64).map(|step| step << 14).find(starts).unwrap();
    for more in (8 << 10..48 << 10).step_by(8 << 10) {
        let output = under(least + more, &["export", "--listen", "127.0.0.1:0", "--", "true"]);
        assert!(output.status.success(), "{least} + {more} KiB: {}", errors(&output));
    }
}
