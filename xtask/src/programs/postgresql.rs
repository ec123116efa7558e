//! PostgreSQL: initdb, a server with all its processes, pgbench and parallel queries, with sums that must agree.

use std::path::PathBuf;

use crate::failure::{Failure, Result, expect_equal};
use crate::sandbox::{Sandbox, is_root, user};
use crate::server::Server;

const CLIENTS: u64 = 8;
const TRANSACTIONS: u64 = 1_500;

/// After any number of transactions the three balances and the history agree.
const BALANCES: &str = "select (select sum(abalance) from pgbench_accounts) = s and (select sum(tbalance) from \
     pgbench_tellers) = s and (select sum(bbalance) from pgbench_branches) = s, n from (select sum(delta) as s, \
     count(*) as n from pgbench_history) as history";

/// Hash joins, sorts and aggregates over 1,000,000 rows; what they must say is known from arithmetic.
const QUERIES: &[(&str, &str)] = &[
    (
        "create table n as select g as i, g % 1000 as k, repeat(md5(g::text), 1 + g % 5) as t from generate_series(1, 1000000) g",
        "SELECT 1000000",
    ),
    ("select count(*), sum(i), sum(length(t)) from n", "1000000|500000500000|96000000"),
    ("select count(*) from n a join n b on a.i = b.i where a.t = b.t", "1000000"),
    ("select count(*), min(c), max(c) from (select k, count(*) c from n group by k) g", "1000|1000|1000"),
    ("select count(distinct t) from n", "1000000"),
    ("select bool_and(t = repeat(md5(i::text), 1 + i % 5)) from n", "t"),
    ("select length(string_agg(t, '' order by i desc)) from n", "96000000"),
    (
        "create index on n (t); select count(*) from n where t = repeat(md5('777'), 1 + 777 % 5)",
        "CREATE INDEX\n1",
    ),
    (
        "update n set t = t || 'x' where i % 2 = 0; vacuum full n; select sum(length(t)) from n",
        "UPDATE 500000\nVACUUM\n96500000",
    ),
    (
        "create extension amcheck; select count(*) from pg_class c, lateral bt_index_check(c.oid) where relam = 403 and relname like 'n\\_%'",
        "CREATE EXTENSION\n1",
    ),
    (
        "select jsonb_array_length(jsonb_agg(jsonb_build_object('i', i, 't', t))) from n where i <= 100000",
        "100000",
    ),
];

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    let programs = programs()?;
    if is_root()? {
        // PostgreSQL refuses to run as root; Debian's package brings a user.
        sandbox.become_user(user("postgres")?)?;
    }
    let initdb = ["-D", "data", "-U", "postgres", "-A", "trust", "--encoding", "UTF8", "--locale", "C"];
    sandbox.job(programs.join("initdb")).args(initdb).proven_in("initdb").proven_in("postgres").run()?;

    let database = Database { sandbox, programs };
    let mut server = database.start_server()?;
    database.pgbench(&["-i", "-s", "5", "-q"])?;
    let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    database.pgbench(&["-c", &clients, "-j", "2", "-t", &transactions])?;
    server.prove_loaded(sandbox)?;
    database.pgbench(&["-n", "-c", &clients, "-j", "2", "-t", &transactions, "-M", "prepared", "-C"])?;
    let balances = format!("t|{}", 2 * CLIENTS * TRANSACTIONS);
    expect_equal("balances", &balances, &database.query(BALANCES)?)?;
    for (query, answer) in QUERIES {
        expect_equal(query, answer, &database.query(query)?)?;
    }
    server.prove_loaded(sandbox)?;
    server.stop("INT")?;

    let mut server = database.start_server()?;
    expect_equal("balances after restart", &balances, &database.query(BALANCES)?)?;
    server.prove_loaded(sandbox)?;
    server.stop("INT")
}

/// The folder of the server's programs; Debian keeps them out of `PATH`.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let mut folders: Vec<PathBuf> = folders.filter(|folder| folder.join("pgbench").is_file()).collect();
    folders.sort();
    let missing = || Failure::Missing("PostgreSQL is not installed (apt-get install postgresql)".to_owned());
    folders.pop().ok_or_else(missing)
}

struct Database<'a> {
    sandbox: &'a Sandbox,
    programs: PathBuf,
}

impl Database<'_> {
    fn start_server(&self) -> Result<Server> {
        let mut command = self.sandbox.preloaded(self.programs.join("postgres"));
        let folder = self.sandbox.path("");
        command.args([
            "-D",
            "data",
            "-c",
            "listen_addresses=",
            "-c",
            "max_parallel_workers_per_gather=2",
            "-k",
        ]);
        command.arg(folder).args(["-c", "work_mem=32MB", "-c", "jit=on", "-c", "fsync=off"]);
        let mut server = Server::start(command, "postgres", self.sandbox)?;
        server.wait_until("a connection", || self.query("select 1").is_ok_and(|answer| answer == "1"))?;
        server.prove_loaded(self.sandbox)?;
        Ok(server)
    }

    fn connection(&self) -> [String; 4] {
        let folder = self.sandbox.path("").to_string_lossy().into_owned();
        ["-h".to_owned(), folder, "-U".to_owned(), "postgres".to_owned()]
    }

    fn pgbench(&self, words: &[&str]) -> Result<()> {
        let job = self.sandbox.job(self.programs.join("pgbench"));
        job.args(self.connection()).args(words).arg("postgres").proven_in("pgbench").run()?;
        Ok(())
    }

    fn query(&self, text: &str) -> Result<String> {
        let job = self.sandbox.job(self.programs.join("psql")).args(self.connection());
        let commands = format!("\\set ON_ERROR_STOP on\n{text};\n");
        Ok(job.args(["-A", "-t", "-X", "postgres"]).input(commands)?.run()?.text().trim_end().to_owned())
    }
}
