//! Answers who scrapes: one page over HTTP, one short connection each.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use faultless_probe::own_memory;
use faultless_report::plain::plain;
use faultless_report::prometheus_text::CONTENT_TYPE;

use super::page::{MetricsPage, locked};
use crate::failure::Failure;

/// Connections answered at once; more wait for their turn in the kernel.
const MOST_CONNECTIONS: usize = 16;

/// A thread's stack, 2 MiB, that of the thread that looks into processes, and large pages.
const ROOM_BYTES: usize = 8 << 20;

/// Longest head of a request, in bytes, and most of its fields.
const MOST_HEAD_BYTES: usize = 8192;
const MOST_FIELDS: usize = 64;

/// Time for a request to arrive, and again for the answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who was answered has so long to close, and may send so many bytes more meanwhile.
const CLOSING_TIME: Duration = Duration::from_secs(1);
const MOST_SURPLUS_BYTES: usize = 1 << 20;

/// Who has not asked yet makes way for others after this time at the earliest; and how often it is looked for such a one.
const GRACE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long no connection is taken after the kernel refused one, as where descriptors have run out.
const BREATH: Duration = Duration::from_millis(200);

/// What `/` shows.
const WELCOME: &str = "<!doctype html><title>faultless export</title><a href=\"/metrics\">metrics</a>\n";

/// Listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    patience: Duration,
    closing_time: Duration,
    grace: Duration,
}

impl Server {
    /// Begins to listen at `ADDRESS:PORT`; without an address, at all.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what is no address, [`Failure::Failed`] with the kernel's reason.
    pub fn bind(address: &str) -> Result<Self, Failure> {
        let shown = plain(address);
        // Where the kernel has no IPv6, all addresses are those of IPv4.
        let all = [format!("[::]{address}"), format!("0.0.0.0{address}")];
        // What begins with two colons is an address of IPv6.
        let has_no_address = address.strip_prefix(':').is_some_and(|port| !port.contains(':'));
        let texts = if has_no_address { &all[..] } else { &[address.to_owned()][..] };
        let resolved: io::Result<Vec<_>> = texts.iter().map(|text| text.to_socket_addrs()).collect();
        let failed = |error: io::Error| Failure::Failed(format!("cannot listen at {shown}: {error}"));
        let addresses: Vec<SocketAddr> = resolved
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => Failure::Usage(format!(
                    "--listen wants ADDRESS:PORT, such as 127.0.0.1:19477 or :19477, not {shown}"
                )),
                // It has the form, and no host has the name.
                _ => failed(error),
            })?
            .into_iter()
            .flatten()
            .collect();
        let listener = TcpListener::bind(addresses.as_slice()).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, patience: PATIENCE, closing_time: CLOSING_TIME, grace: GRACE })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, in threads of its own.
    ///
    /// # Errors
    /// [`Failure::Failed`] where there can be no thread.
    pub fn serve(self, page: &Arc<MetricsPage>) -> Result<(), Failure> {
        let (listener, grace) = (Arc::new(self.listener), self.grace);
        let times = (self.patience, self.closing_time);
        let connections = Arc::new(Mutex::new(Connections::default()));
        // Held until all are there: who comes before that must not make way for want of the others.
        let mut counted = locked(&connections);
        let (begin_one, begun) = mpsc::channel();
        for number in 0..MOST_CONNECTIONS {
            // Fewer answer where more would leave no room for what they answer with.
            if number > 0 && !own_memory::has_room(ROOM_BYTES) {
                break;
            }
            let (listener, page, own) = (Arc::clone(&listener), Arc::clone(page), Arc::clone(&connections));
            let begin_one = begin_one.clone();
            let answer_all = move || {
                let _ = begin_one.send(());
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let stream = Arc::new(stream);
                            begin(&stream, grace, &own);
                            // Who goes away in the middle is nobody's loss.
                            drop(answer(&stream, &page, times, &own));
                            locked(&own).end(&stream);
                        }
                        Err(_) => std::thread::sleep(BREATH),
                    }
                }
            };
            match std::thread::Builder::new().spawn(answer_all) {
                Ok(_) => {
                    counted.threads += 1;
                    // While it begins the next one's room is not to be looked for.
                    let _ = begun.recv();
                }
                Err(error) if number == 0 => {
                    return Err(Failure::Failed(format!("cannot start a thread that answers: {error}")));
                }
                // Fewer do, too.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// A connection begins: where it takes the last thread, another makes way as soon as one has had the time to ask, and until then its own
/// request waits.
fn begin(stream: &Arc<TcpStream>, grace: Duration, connections: &Mutex<Connections>) {
    let mut all = locked(connections);
    all.open += 1;
    while !all.has_room(Instant::now()) {
        drop(all);
        std::thread::sleep(LOOK_AGAIN);
        all = locked(connections);
    }
    all.waiting.push_back((Instant::now() + grace, Arc::clone(stream)));
}

/// The open connections, one for each thread at most, and who of them is waited for: who is idle does not keep out who asks.
#[derive(Default)]
struct Connections {
    threads: usize,
    open: usize,
    /// Whose request has not wholly arrived, or who was answered and has not closed, and from when on they make way; who came first is
    /// first.
    waiting: VecDeque<(Instant, Arc<TcpStream>)>,
    /// Who was told to make way, and will.
    leaving: Vec<Arc<TcpStream>>,
}

impl Connections {
    fn end_waiting(&mut self, stream: &Arc<TcpStream>) {
        self.waiting.retain(|(_, other)| !Arc::ptr_eq(other, stream));
    }

    fn await_close(&mut self, stream: &Arc<TcpStream>) {
        // Who makes way already is not waited for.
        if !self.leaving.iter().any(|other| Arc::ptr_eq(other, stream)) {
            let now = Instant::now();
            self.waiting.push_back((now, Arc::clone(stream)));
            self.has_room(now);
        }
    }

    fn end(&mut self, stream: &Arc<TcpStream>) {
        self.end_waiting(stream);
        self.leaving.retain(|other| !Arc::ptr_eq(other, stream));
        self.open -= 1;
    }

    /// Whether a thread is left for who comes next. Where the last one is taken, the one that is waited for longest is read no further,
    /// and so gives its own up; false while all who are waited for came a moment ago.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.open - self.leaving.len() < self.threads || self.waiting.is_empty() {
            return true;
        }
        let Some(place) = self.waiting.iter().position(|(from, _)| *from <= now) else { return false };
        if let Some((_, idle)) = self.waiting.remove(place) {
            // What has arrived can still be read. Who has gone away meanwhile makes way, too.
            drop(idle.shutdown(Shutdown::Read));
            self.leaving.push(idle);
        }
        true
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    Welcome,
    Elsewhere,
    OtherMethod,
    Nonsense,
}

fn answer(
    stream: &Arc<TcpStream>,
    page: &MetricsPage,
    (patience, closing_time): (Duration, Duration),
    connections: &Mutex<Connections>,
) -> io::Result<()> {
    let (request, is_head) = receive(stream, patience)?;
    locked(connections).end_waiting(stream);
    let (metrics, reason);
    let (status, content_type, body) = match request {
        Request::Metrics => match page.is_old(Instant::now()) {
            None => {
                metrics = page.text();
                ("200 OK", CONTENT_TYPE, metrics.as_str())
            }
            Some(why) => {
                reason = why + "\n";
                ("503 Service Unavailable", "text/plain", reason.as_str())
            }
        },
        Request::Welcome => ("200 OK", "text/html; charset=utf-8", WELCOME),
        Request::Elsewhere => ("404 Not Found", "text/plain", "metrics are at /metrics\n"),
        Request::OtherMethod => ("405 Method Not Allowed", "text/plain", "GET and HEAD only\n"),
        Request::Nonsense => ("400 Bad Request", "text/plain", "this is no request of HTTP/1\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(stream, [head.as_bytes(), if is_head { b"" } else { body.as_bytes() }], patience)?;
    locked(connections).await_close(stream);
    close_after_them(stream, closing_time)
}

/// Sends everything in this time, however little a reader takes at once.
fn send(mut stream: &TcpStream, parts: [&[u8]; 2], patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    for part in parts {
        let mut rest = part;
        while !rest.is_empty() {
            stream.set_write_timeout(Some(time_left(deadline)?))?;
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => rest = &rest[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Closes so that the answer arrives: where bytes lie unread, the kernel resets the connection, and the other side may lose what it
/// has not read yet.
fn close_after_them(stream: &TcpStream, closing_time: Duration) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let (mut taken, deadline) = (0, Instant::now() + closing_time);
    while taken < MOST_SURPLUS_BYTES {
        match read(stream, &mut [0; 4096], deadline)? {
            0 => break,
            length => taken += length,
        }
    }
    Ok(())
}

/// Reads some bytes, also where we were stopped and let go on meanwhile: a call with a time limit is interrupted by that.
fn read(mut stream: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads a request; whether it wants the head of the answer only.
fn receive(stream: &TcpStream, patience: Duration) -> io::Result<(Request, bool)> {
    let (mut head, deadline) = (Vec::new(), Instant::now() + patience);
    loop {
        let mut more = [0; 1024];
        match read(stream, &mut more, deadline)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend_from_slice(&more[..length]),
        }
        match parse(&head) {
            Some(request) => return Ok(request),
            None if head.len() > MOST_HEAD_BYTES => return Ok((Request::Nonsense, false)),
            None => {}
        }
    }
}

/// A request, and whether it is HEAD; none while more of it is to come.
fn parse(head: &[u8]) -> Option<(Request, bool)> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some((Request::Nonsense, false)),
    }
    let path = request.path.unwrap_or_default();
    // The form that a proxy is asked in names the host, too; RFC 9112, 3.2.2.
    let of_host = path.strip_prefix("http://");
    let path = of_host.map_or(path, |host| host.find('/').map_or("/", |end| &host[end..]));
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let is_head = request.method == Some("HEAD");
    let wanted = match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => Request::Metrics,
        (Some("GET" | "HEAD"), "/") => Request::Welcome,
        (Some("GET" | "HEAD"), _) => Request::Elsewhere,
        _ => Request::OtherMethod,
    };
    Some((wanted, is_head))
}

#[cfg(test)]
mod tests {
    use faultless_diagnosis::fleet::{Fleet, Grouping};

    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let of = |text: &str| parse(text.as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Some((Request::Metrics, false)));
        assert_eq!(of("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), Some((Request::Metrics, true)));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Some((Request::Welcome, false)));
        assert_eq!(of("GET http://a:1/metrics?x HTTP/1.1\r\n\r\n"), Some((Request::Metrics, false)));
        assert_eq!(of("GET http://a:1 HTTP/1.1\r\n\r\n"), Some((Request::Welcome, false)));
        assert_eq!(of("GET /etc/passwd HTTP/1.1\r\n\r\n"), Some((Request::Elsewhere, false)));
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Some((Request::OtherMethod, false)));
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost"), None);
        assert_eq!(of("\u{1}\u{2}\r\n\r\n"), Some((Request::Nonsense, false)));
        let many = "a: b\r\n".repeat(MOST_FIELDS + 1);
        assert_eq!(of(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Some((Request::Nonsense, false)));
    }

    #[test]
    fn who_asks_nothing_or_does_not_close_makes_way_for_who_asks() {
        let mut server = Server::bind("127.0.0.1:0").unwrap();
        (server.patience, server.closing_time) = (Duration::from_hours(1), Duration::from_hours(1));
        let address = server.address();
        server
            .serve(&Arc::new(MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(1))))
            .unwrap();
        let connect = || {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        };
        // One of them has begun to ask.
        let idle: Vec<TcpStream> = (0..3 * MOST_CONNECTIONS).map(|_| connect()).collect();
        (&idle[0]).write_all(b"GET /metr").unwrap();
        let ask = || {
            let mut asking = connect();
            asking.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            asking
        };
        let read = |mut asking: TcpStream| {
            let mut answer = String::new();
            asking.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        };
        (0..3).for_each(|_| read(ask()));
        let unread: Vec<TcpStream> = (0..3 * MOST_CONNECTIONS).map(|_| ask()).collect();
        (0..3).for_each(|_| read(ask()));
        unread.into_iter().for_each(read);
    }

    #[test]
    fn who_comes_before_all_threads_are_there_does_not_make_way() {
        for _ in 0..20 {
            let mut server = Server::bind("127.0.0.1:0").unwrap();
            server.patience = Duration::from_hours(1);
            let address = server.address();
            let mut waiting: Vec<TcpStream> =
                (1..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            waiting[0].write_all(b"GET /metr").unwrap();
            server
                .serve(&Arc::new(MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(1))))
                .unwrap();
            // One thread is left: who makes way is read to its end at once.
            waiting[1].set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert!(waiting[1].read(&mut [0]).is_err(), "it was sent away");
            let mut answer = String::new();
            waiting[0].write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
            waiting[0].read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
    }

    #[test]
    fn who_came_a_moment_ago_does_not_make_way() {
        let mut server = Server::bind("127.0.0.1:0").unwrap();
        (server.patience, server.grace) = (Duration::from_hours(1), Duration::from_hours(1));
        let address = server.address();
        server
            .serve(&Arc::new(MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(1))))
            .unwrap();
        let together: Vec<TcpStream> =
            (0..3 * MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        // Meanwhile as many are taken as there are threads.
        std::thread::sleep(Duration::from_millis(50));
        together.iter().for_each(|mut one| one.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap());
        for mut asking in together {
            let mut answer = String::new();
            asking.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
    }

    #[test]
    fn where_all_are_taken_one_makes_way_and_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let others: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
        let [first, second] = [(); 2].map(|()| Arc::new(listener.accept().unwrap().0));
        let connections = Mutex::new(Connections { threads: 2, ..Connections::default() });
        for stream in [&first, &second] {
            begin(stream, Duration::ZERO, &connections);
            locked(&connections).end_waiting(stream);
        }
        let mut connections = locked(&connections);
        assert!(connections.leaving.is_empty(), "both are being answered");
        connections.await_close(&first);
        connections.await_close(&second);
        assert!(Arc::ptr_eq(&connections.leaving[0], &first) && connections.leaving.len() == 1);
        assert_eq!((&*first).read(&mut [0]).unwrap(), 0, "it does not wait for who does not close");
        connections.end(&first);
        assert_eq!((connections.open, connections.waiting.len(), connections.leaving.len()), (1, 1, 0));
        drop(others);
    }

    #[test]
    fn an_answer_has_one_time_however_slowly_it_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (writer, _) = listener.accept().unwrap();
        // It always takes some, and all of it in hours.
        let reading = std::thread::spawn(move || {
            while reader.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let sent = send(&writer, [b"", &vec![0; 1 << 30]], Duration::from_millis(300));
        assert!(matches!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock));
        writer.shutdown(Shutdown::Both).unwrap();
        drop(writer);
        drop(reading);
    }

    #[test]
    fn what_is_no_address_is_a_usage_error_and_a_taken_one_is_not() {
        for address in ["", "nonsense", "127.0.0.1", "127.0.0.1:99999", ":x"] {
            assert!(matches!(Server::bind(address), Err(Failure::Usage(_))), "{address}");
        }
        // A name of the form that is wanted, of no host: too long to be asked anybody for.
        let unknown = Server::bind(&format!("{}:80", "x".repeat(300)));
        assert!(
            matches!(&unknown, Err(Failure::Failed(reason)) if reason.starts_with("cannot listen at xxx"))
        );
        // Also where the kernel has no IPv6.
        assert_eq!(Server::bind("::1:0").is_ok(), Server::bind("[::1]:0").is_ok());
        let first = Server::bind("127.0.0.1:0").unwrap();
        let taken = Server::bind(&first.address().to_string());
        assert!(
            matches!(taken, Err(Failure::Failed(reason)) if reason.starts_with("cannot listen at 127.0.0.1:"))
        );
    }
}
