//! Redis: benchmarked, snapshotted while written to, reloaded and restarted, with every value known beforehand.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::failure::{Result, expect_equal, wrong};
use crate::sandbox::{Sandbox, tool};
use crate::sequence::Sequence;
use crate::server::Server;

const KEYS: u64 = 8_000;

/// Which generation of values each key holds.
#[derive(Clone, Copy)]
enum Round {
    /// As first written.
    First,
    /// Every third key has been overwritten, every seventh deleted.
    Second,
}

struct Client<'a> {
    sandbox: &'a Sandbox,
    cli: PathBuf,
}

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    tool("redis-server", "redis-server")?;
    let benchmark = tool("redis-benchmark", "redis-tools")?;
    let client = Client { sandbox, cli: tool("redis-cli", "redis-tools")? };

    let mut server = client.start_server("1")?;
    client.write(Round::First)?;
    client.verify(Round::First)?;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| client.load(&benchmark));
        for _ in 0..4 {
            client.save_in_background()?;
        }
        load.join().unwrap_or_else(|_| wrong("the thread that loads the server panicked"))
    })?;
    server.prove_loaded(sandbox)?;

    client.write(Round::Second)?;
    client.verify(Round::Second)?;
    let digest = client.ask(&["debug", "digest"])?;
    expect_equal("debug reload", "OK\n", &client.ask(&["debug", "reload"])?)?;
    expect_equal("digest after reload", &digest, &client.ask(&["debug", "digest"])?)?;
    client.verify(Round::Second)?;
    client.save_in_background()?;
    server.prove_loaded(sandbox)?;
    server.stop("TERM")?;

    // Threads of Redis's own wait by spinning, so they get the light half of the work.
    let mut server = client.start_server("3")?;
    expect_equal("digest after restart", &digest, &client.ask(&["debug", "digest"])?)?;
    client.verify(Round::Second)?;
    expect_equal("flushall", "OK\n", &client.ask(&["flushall", "async"])?)?;
    expect_equal("dbsize", "0\n", &client.ask(&["dbsize"])?)?;
    client.write(Round::First)?;
    client.verify(Round::First)?;
    server.prove_loaded(sandbox)?;
    server.stop("TERM")
}

impl Client<'_> {
    fn start_server(&self, io_threads: &str) -> Result<Server> {
        let mut command = self.sandbox.preloaded("redis-server");
        command.args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--activedefrag", "no"]);
        command.args([
            "--io-threads",
            io_threads,
            "--io-threads-do-reads",
            "yes",
            "--enable-debug-command",
            "yes",
        ]);
        let mut server = Server::start(command, "redis-server", self.sandbox)?;
        server
            .wait_until("an answer to PING", || self.ask(&["ping"]).is_ok_and(|answer| answer == "PONG\n"))?;
        server.prove_loaded(self.sandbox)?;
        Ok(server)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        Ok(self.sandbox.plain_job(&self.cli).args(["-s", "redis.sock"]).args(words).run()?.text())
    }

    /// Sends commands and returns one line or more for each answer.
    fn send(&self, commands: String) -> Result<String> {
        let job = self.sandbox.job(&self.cli).args(["-s", "redis.sock"]).input(commands)?;
        Ok(job.proven_in("redis-cli").run()?.text())
    }

    fn load(&self, benchmark: &PathBuf) -> Result<()> {
        let tests = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,mset";
        for (requests, pipeline, size_bytes, tests) in [
            ("200000", "16", "100", tests),
            ("20000", "1", "5000", "set,get,lpush,rpop"),
            ("20000", "4", "16", "lrange_100"),
        ] {
            let job =
                self.sandbox.job(benchmark).args(["-s", "redis.sock", "-q", "-c", "50", "--threads", "2"]);
            let job =
                job.args(["-r", "100000", "-n", requests, "-P", pipeline, "-d", size_bytes, "-t", tests]);
            let done = job.proven_in("redis-benchmark").run()?;
            let finished = done.text().matches("requests per second").count();
            if finished < tests.split(',').count() {
                return wrong(format!(
                    "redis-benchmark finished only {finished} of {tests}\n{}",
                    done.text()
                ));
            }
        }
        Ok(())
    }

    /// Forks a snapshot and waits until it is written.
    fn save_in_background(&self) -> Result<()> {
        let info = || self.ask(&["info", "persistence"]);
        let answer = self.ask(&["bgsave"])?;
        expect_equal("bgsave", "Background saving started\n", &answer)?;
        let start = Instant::now();
        while !info()?.contains("rdb_bgsave_in_progress:0") {
            if start.elapsed() > Duration::from_secs(120) {
                return wrong("bgsave did not end within two minutes");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if info()?.contains("rdb_last_bgsave_status:ok") { Ok(()) } else { wrong("bgsave failed") }
    }

    fn write(&self, round: Round) -> Result<()> {
        let mut commands = String::new();
        for key in 0..KEYS {
            match (round, value(key, round)) {
                (Round::First, Some(value)) => {
                    commands += &format!("set k:{key} {value}\nhset h:{} {key} {value}\n", key % 50);
                    commands += &format!("rpush l:{} {key}\nzadd z {key} m{key}\n", key % 20);
                }
                (Round::Second, Some(value)) if key.is_multiple_of(3) => {
                    commands += &format!("set k:{key} {value}\n")
                }
                (Round::Second, None) => commands += &format!("del k:{key}\n"),
                _ => {}
            }
        }
        let answers = self.send(commands)?;
        match answers.lines().find(|answer| *answer != "OK" && answer.parse::<u64>().is_err()) {
            Some(answer) => wrong(format!("redis refused a write: {answer}")),
            None => Ok(()),
        }
    }

    fn verify(&self, round: Round) -> Result<()> {
        let (mut commands, mut expected) = (String::new(), String::new());
        for key in 0..KEYS {
            commands += &format!("get k:{key}\nhget h:{} {key}\nzscore z m{key}\n", key % 50);
            let first = value(key, Round::First).unwrap_or_default();
            let now = value(key, round).unwrap_or_default();
            expected += &format!("{now}\n{first}\n{key}\n");
        }
        for list in 0..20 {
            commands += &format!("lrange l:{list} 0 -1\n");
            (list..KEYS).step_by(20).for_each(|key| expected += &format!("{key}\n"));
        }
        expect_equal("redis values", &expected, &self.send(commands)?)
    }
}

/// What `k:KEY` holds after a round. Most values are short, some have 20,000 bytes.
fn value(key: u64, round: Round) -> Option<String> {
    let overwritten = match round {
        Round::Second if key.is_multiple_of(7) => return None,
        Round::Second => key.is_multiple_of(3),
        Round::First => false,
    };
    let mut sequence = Sequence::new(key * 2 + u64::from(overwritten));
    let limit_bytes = [40, 40, 40, 40, 400, 400, 2_000, 20_000][(key % 8) as usize];
    let length_bytes = 1 + sequence.below(limit_bytes) as usize;
    Some(sequence.text(length_bytes))
}
