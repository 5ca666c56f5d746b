//! `bentpipe emulate` between two real namespaces, judged by ping(8).
//!
//! Needs root, /dev/net/tun, ip(8) and ping(8). Where these are missing a test says so
//! and passes, except under CI=true, where it fails.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Two namespaces of this test's own, gone when dropped.
struct Pair {
    terminal: String,
    gateway: String,
    directory: PathBuf,
}

impl Pair {
    /// `None` where the machine does not allow it.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bptest-{}-{number}", std::process::id());
        let pair = Self {
            terminal: format!("{name}-t"),
            gateway: format!("{name}-g"),
            directory: std::env::temp_dir().join(name),
        };
        let missing = if std::fs::File::open("/dev/net/tun").is_err() {
            Some("/dev/net/tun cannot be opened".to_owned())
        } else {
            [&pair.terminal, &pair.gateway]
                .into_iter()
                .find_map(|name| {
                    let made = Command::new("ip").args(["netns", "add", name]).output();
                    match made {
                        Ok(made) if made.status.success() => None,
                        Ok(made) => Some(String::from_utf8_lossy(&made.stderr).into_owned()),
                        Err(error) => Some(format!("ip(8): {error}")),
                    }
                })
        };
        if let Some(missing) = missing {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "CI must run this test, but: {missing}"
            );
            eprintln!("SKIPPED, run as root to have it run: {missing}");
            return None;
        }
        std::fs::create_dir_all(&pair.directory).unwrap();
        Some(pair)
    }

    fn scenario(&self, r#return: &str) -> PathBuf {
        let path = self.directory.join("scenario.toml");
        let text = format!(
            "name = \"test\"\n\
             [forward]\nrate = \"100 Mbit/s\"\ndelay = \"30 ms\"\nqueue = \"100 packets\"\n\
             [return]\nrate = \"100 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 packets\"\n{return}\n",
            return = r#return
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, scenario: &std::path::Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
        command
            .arg("emulate")
            .arg(scenario)
            .args(["--terminal", &self.terminal, "--gateway", &self.gateway])
            .args(["--terminal-address", "10.199.0.1/30"])
            .args(["--terminal-address", "fd99::1/64"])
            .args(["--gateway-address", "10.199.0.2/30"])
            .args(["--gateway-address", "fd99::2/64"])
            .arg("--certificate")
            .arg(self.certificate_path());
        command
    }

    fn certificate_path(&self) -> PathBuf {
        self.directory.join("certificate.json")
    }

    fn certificate(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.certificate_path()).unwrap()).unwrap()
    }

    fn ip(&self, namespace: &str, arguments: &[&str]) -> Output {
        Command::new("ip")
            .args(["-n", namespace])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn has_device(&self, namespace: &str) -> bool {
        self.ip(namespace, &["link", "show", "sat0"])
            .status
            .success()
    }

    /// Pings the gateway's end: packets sent and received, and the round-trip times.
    fn ping(&self, address: &str, arguments: &[&str]) -> Vec<f64> {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.terminal, "ping", "-i", "0.02"])
            .args(arguments)
            .arg(address)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok())
            .collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in [&self.terminal, &self.gateway] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A running emulator, killed when dropped.
struct Running(Child);

impl Running {
    /// Starts it and waits until it is ready.
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, stdout)
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("ready"), "{line:?}");
        Self(child)
    }

    /// Interrupts it and takes its exit code.
    fn interrupt(mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        self.0.wait().unwrap().code()
    }

    fn wait(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fails(mut command: Command, code: i32, words: &[&str]) {
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

#[test]
fn a_ping_takes_both_delays_and_the_certificate_counts_it() {
    let Some(pair) = Pair::new() else { return };
    let emulator = Running::start(pair.command(&pair.scenario("")));
    for address in ["10.199.0.2", "fd99::2"] {
        let times = pair.ping(address, &["-c", "20", "-W", "20"]);
        assert_eq!(times.len(), 20, "all come back from {address}");
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        // Never early; late by what a loaded machine adds to its best of twenty.
        assert!((50.0..70.0).contains(&least), "{least} ms to {address}");
    }
    assert_eq!(emulator.interrupt(), Some(0));
    let certificate = pair.certificate();
    assert_eq!(certificate["schema"], "bentpipe/certificate/1");
    assert_eq!(certificate["links"][0]["name"], "satellite");
    for (index, name) in ["forward", "return"].into_iter().enumerate() {
        let direction = &certificate["links"][0]["directions"][index];
        assert_eq!(direction["name"], name);
        let count = |field: &str| direction[field].as_u64().unwrap();
        assert!(count("entered") >= 40, "{direction}");
        assert_eq!(count("entered"), count("delivered") + count("held"));
        assert_eq!(direction["dropped"]["loss"], 0);
        assert!(direction["lateness_us"]["p50"].as_f64().unwrap() > 0.0);
    }
    for namespace in [&pair.terminal, &pair.gateway] {
        assert!(!pair.has_device(namespace), "the device is gone");
    }
}

#[test]
fn what_the_air_loses_is_lost_and_counted() {
    let Some(pair) = Pair::new() else { return };
    let emulator = Running::start(pair.command(&pair.scenario("loss = \"100 %\"")));
    assert_eq!(
        pair.ping("10.199.0.2", &["-c", "10", "-W", "1"]),
        Vec::<f64>::new()
    );
    assert_eq!(emulator.interrupt(), Some(0));
    let r#return = &pair.certificate()["links"][0]["directions"][1];
    assert!(r#return["dropped"]["loss"].as_u64().unwrap() >= 10);
    assert_eq!(r#return["delivered"], 0);
}

#[test]
fn every_packet_has_its_record() {
    let Some(pair) = Pair::new() else { return };
    let path = pair.directory.join("packets.bin");
    let mut command = pair.command(&pair.scenario("loss = \"30 %\""));
    command.arg("--records").arg(&path);
    let emulator = Running::start(command);
    let came_back = pair.ping("10.199.0.2", &["-c", "30", "-W", "1"]).len() as u64;
    assert_eq!(emulator.interrupt(), Some(0));
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let header: serde_json::Value = serde_json::from_slice(&bytes[..end]).unwrap();
    let fate_of = |record: &[u8]| {
        let number = u16::from_le_bytes([record[28], record[29]]);
        header["fates"][usize::from(number)]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let records: Vec<_> = bytes[end + 1..].chunks(30).collect();
    for (index, name) in ["forward", "return"].into_iter().enumerate() {
        let fates: Vec<_> = records
            .iter()
            .filter(|record| usize::from(u16::from_le_bytes([record[26], record[27]])) == index)
            .map(|record| fate_of(record))
            .collect();
        let count = |fate: &str| fates.iter().filter(|name| *name == fate).count() as u64;
        let direction = &pair.certificate()["links"][0]["directions"][index];
        assert_eq!(direction["delivered"], count("delivered"), "{name}");
        assert_eq!(direction["dropped"]["loss"], count("loss"), "{name}");
        assert!(count("delivered") >= came_back);
    }
}

#[test]
fn many_links_run_at_once_each_with_counters_of_its_own() {
    let Some(pair) = Pair::new() else { return };
    let mut command = pair.command(&pair.scenario(""));
    for number in 1..=20 {
        command.arg("--link").arg(format!(
            "{}/s{number},10.198.{number}.1/30={}/s{number},10.198.{number}.2/30",
            pair.terminal, pair.gateway
        ));
    }
    let emulator = Running::start(command);
    for number in [1, 20] {
        let times = pair.ping(&format!("10.198.{number}.2"), &["-c", "5", "-W", "20"]);
        assert_eq!(times.len(), 5);
    }
    assert_eq!(emulator.interrupt(), Some(0));
    let certificate = pair.certificate();
    let entered = |number: usize| {
        certificate["links"][number]["directions"][1]["entered"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(certificate["links"][20]["name"], "satellite-20");
    assert!(entered(1) >= 5 && entered(20) >= 5 && entered(7) < 5);
}

#[test]
fn a_run_ends_by_itself_when_its_time_is_over() {
    let Some(pair) = Pair::new() else { return };
    let mut command = pair.command(&pair.scenario(""));
    command.args(["--duration", "300 ms", "--mtu", "9000"]);
    let emulator = Running::start(command);
    assert_eq!(emulator.wait(), Some(0));
    assert!(pair.certificate()["duration_s"].as_f64().unwrap() >= 0.3);
}

#[test]
fn a_device_that_is_taken_away_ends_the_run_with_its_name() {
    let Some(pair) = Pair::new() else { return };
    let emulator = Running::start(pair.command(&pair.scenario("")));
    assert!(
        pair.ip(&pair.gateway, &["link", "del", "sat0"])
            .status
            .success()
    );
    assert_eq!(emulator.wait(), Some(1));
    let certificate = pair.certificate();
    assert_eq!(certificate["valid"], false);
    let fault = certificate["fault"].as_str().unwrap();
    assert!(
        fault.contains("sat0") && fault.contains(&pair.gateway),
        "{fault}"
    );
}

#[test]
fn a_namespace_that_is_deleted_ends_the_run_with_its_name() {
    let Some(pair) = Pair::new() else { return };
    let emulator = Running::start(pair.command(&pair.scenario("")));
    let deleted = Command::new("ip")
        .args(["netns", "del", &pair.terminal])
        .status();
    assert!(deleted.unwrap().success());
    assert_eq!(emulator.wait(), Some(1));
    let fault = pair.certificate()["fault"].as_str().unwrap().to_owned();
    assert!(fault.contains(&pair.terminal), "{fault}");
}

#[test]
fn a_device_that_was_there_before_is_not_touched() {
    let Some(pair) = Pair::new() else { return };
    assert!(
        pair.ip(&pair.gateway, &["tuntap", "add", "sat0", "mode", "tun"])
            .status
            .success()
    );
    fails(
        pair.command(&pair.scenario("")),
        1,
        &["sat0", &pair.gateway, "already"],
    );
    assert!(pair.has_device(&pair.gateway));
    assert!(!pair.has_device(&pair.terminal), "nothing is left behind");
}

#[test]
fn a_missing_namespace_is_named_with_the_remedy() {
    let Some(pair) = Pair::new() else { return };
    let mut command = pair.command(&pair.scenario(""));
    command.args(["--ground-gateway", &pair.gateway]);
    fails(command, 2, &["--ground-server"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command.arg("emulate").arg(pair.scenario("")).args([
        "--terminal",
        &pair.terminal,
        "--gateway",
        "bptest-none",
    ]);
    fails(command, 1, &["bptest-none", "ip netns add"]);
}

#[test]
fn a_processor_that_is_not_there_is_named() {
    let Some(pair) = Pair::new() else { return };
    let mut command = pair.command(&pair.scenario(""));
    command.args(["--processor", "100000"]);
    fails(
        command,
        2,
        &["--processor 100000", "no thread of this process"],
    );
}

/// All have one priority there, and none is stopped by the system: each has to give way.
#[test]
fn emulators_share_a_processor() {
    let pairs: Vec<_> = (0..3).map_while(|_| Pair::new()).collect();
    let allowed = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.unwrap().trim().rsplit([',', '-']).next().unwrap();
    let emulators: Vec<_> = pairs
        .iter()
        .map(|pair| {
            let mut command = pair.command(&pair.scenario(""));
            command.args(["--processor", last]);
            Running::start(command)
        })
        .collect();
    let times = std::thread::scope(|scope| {
        let pings: Vec<_> = pairs
            .iter()
            .map(|pair| scope.spawn(|| pair.ping("10.199.0.2", &["-c", "50"])))
            .collect();
        pings
            .into_iter()
            .map(|ping| ping.join().unwrap())
            .collect::<Vec<_>>()
    });
    for times in times {
        assert_eq!(times.len(), 50);
        assert!(times.iter().all(|time| *time >= 50.0), "{times:?}");
    }
    for emulator in emulators {
        assert_eq!(emulator.interrupt(), Some(0));
    }
}

#[test]
fn a_certificate_over_nothing_is_invalid() {
    let Some(pair) = Pair::new() else { return };
    let mut command = pair.command(&pair.scenario(""));
    command.args(["--duration", "100 ms"]);
    assert_eq!(Running::start(command).wait(), Some(0));
    let certificate = pair.certificate();
    assert_eq!(certificate["valid"], false);
    let reason = certificate["reasons"][0].as_str().unwrap();
    assert!(reason.contains("no packet"), "{reason}");
}

#[test]
fn addresses_between_which_nothing_would_take_the_link_are_refused() {
    let Some(pair) = Pair::new() else { return };
    let scenario = pair.scenario("");
    let addressed = |terminal: &str, gateway: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
        command.arg("emulate").arg(&scenario);
        command.args(["--duration", "100 ms"]);
        command.args(["--terminal", &pair.terminal, "--terminal-address", terminal]);
        command.args(["--gateway", &pair.gateway, "--gateway-address", gateway]);
        command
    };
    let same = addressed("10.199.0.1/24", "10.199.0.1/24");
    fails(same, 2, &["both have the address 10.199.0.1"]);
    let apart = addressed("10.199.0.1/24", "10.199.1.2/24");
    fails(
        apart,
        2,
        &["10.199.0.1/24", "10.199.1.2/24", "different networks"],
    );
    let bare = addressed("10.199.0.1", "10.199.0.2/24");
    fails(bare, 2, &["10.199.0.1/24", "how large its network is"]);
    let taken = pair.ip(
        &pair.gateway,
        &["address", "add", "10.199.0.1/32", "dev", "lo"],
    );
    assert!(taken.status.success());
    let elsewhere = addressed("10.199.0.1/24", "10.199.0.2/24");
    fails(
        elsewhere,
        1,
        &["lo in", &pair.gateway, "10.199.0.1/32 already"],
    );
    assert!(!pair.has_device(&pair.terminal), "nothing is left behind");
}

/// `bentpipe emulate` with a program behind it, through `before`.
fn with_program(before: &[&str], scenario: &str, line: &str) -> Output {
    let bentpipe = [env!("CARGO_BIN_EXE_bentpipe"), "emulate", scenario];
    let words: Vec<_> = before
        .iter()
        .copied()
        .chain(bentpipe)
        .chain(["--", "sh", "-c", line])
        .collect();
    Command::new(words[0]).args(&words[1..]).output().unwrap()
}

fn least_ms(output: &Output) -> f64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    let least = times.fold(f64::INFINITY, f64::min);
    assert!(least.is_finite(), "{output:?}");
    least
}

const PING: &str = "ping -n -c 3 -i 0.05 -W 20 $BENTPIPE_GATEWAY_ADDRESS; exit 7";

#[test]
fn a_program_behind_a_presets_name_runs_at_the_terminals_end_of_it() {
    let Some(_pair) = Pair::new() else { return };
    let output = with_program(&[], "geo", PING);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!((500.0..600.0).contains(&least_ms(&output)));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("certificate: geo"), "{told}");
    let other = "nsenter --net=$BENTPIPE_GATEWAY_NETNS ip -o -4 address show sat0";
    let output = with_program(&[], "geo", other);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("10.98.0.2/24"), "{output:?}");
}

#[test]
fn nobody_needs_to_be_root_for_it() {
    let Some(_pair) = Pair::new() else { return };
    // An ordinary user on a machine whose /dev/net/tun is for everybody, as Debian's is.
    let ordinary = "mount -t tmpfs tmpfs /dev/net && mknod -m 0666 /dev/net/tun c 10 200 \
        && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", ordinary, "sh"];
    let output = with_program(&before, "starlink", PING);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(least_ms(&output) > 20.0);
}

#[test]
fn an_unknown_preset_is_told_the_nearest() {
    let output = with_program(&[], "goe", "true");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("nearest are geo, "), "{told}");
}

#[test]
fn a_scenario_in_a_plans_place_is_told_apart() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/geo.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command.args(["sim", scenario]);
    fails(command, 2, &["this is a scenario", "bentpipe emulate"]);
}
