//! `bentpipe emulate`: a link between network namespaces, in real time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use bentpipe_emulator::{
    Certificate, ControlHandle, DirectionStatus, Emulator, EmulatorError, End, LinkPlan,
    certificate, next_addresses,
};
use bentpipe_link::Seeds;
use bentpipe_link::spec::{DirectionSpec, Scenario};
use bentpipe_os::namespace::{Namespace, NamespaceError};
use bentpipe_os::tun::{self, TunError, TunSpec};
use bentpipe_units::Span;
use clap::Args;
use ipnet::IpNet;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::control::{ControlSocket, RunningLinks};
use crate::failure::Failure;
use crate::link;

/// Run a scenario between TUN devices in network namespaces, in real time
///
/// Makes a device in each namespace that is named, moves packets between them as the
/// scenario says, and prints a certificate of punctuality at the end (SIGINT, SIGTERM
/// or --duration), and on SIGUSR1 one of the time since the last. The devices vanish with
/// the run.
#[derive(Debug, Args)]
pub struct Command {
    /// The scenario, a TOML file
    scenario: PathBuf,
    /// The terminal's end of the satellite hop; the device is sat0 unless named
    #[arg(
        long,
        value_name = "NETNS[/DEV]",
        required_unless_present = "link",
        requires = "gateway"
    )]
    terminal: Option<Place>,
    /// The gateway's end of the satellite hop; the device is sat0 unless named
    #[arg(long, value_name = "NETNS[/DEV]", requires = "terminal")]
    gateway: Option<Place>,
    /// A further satellite hop of the same scenario, as often as wanted, each with a
    /// queue and a seed of its own
    #[arg(long, value_name = "NETNS[/DEV][,CIDR]...=NETNS[/DEV][,CIDR]...")]
    link: Vec<Ends>,
    /// The gateway's end of the ground hop; the device is gnd0 unless named
    #[arg(long, value_name = "NETNS[/DEV]", requires = "ground_server")]
    ground_gateway: Option<Place>,
    /// The servers' end of the ground hop; the device is gnd0 unless named
    #[arg(long, value_name = "NETNS[/DEV]", requires = "ground_gateway")]
    ground_server: Option<Place>,
    /// An address of the terminal's device
    #[arg(long, value_name = "CIDR")]
    terminal_address: Vec<IpNet>,
    /// An address of the gateway's device
    #[arg(long, value_name = "CIDR")]
    gateway_address: Vec<IpNet>,
    /// An address of the gateway's device of the ground hop
    #[arg(long, value_name = "CIDR", requires = "ground_gateway")]
    ground_gateway_address: Vec<IpNet>,
    /// An address of the servers' device
    #[arg(long, value_name = "CIDR", requires = "ground_server")]
    ground_server_address: Vec<IpNet>,
    /// Largest packet, bytes
    #[arg(long, default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(i64::from(tun::SMALLEST_MTU)..=i64::from(tun::LARGEST_MTU)))]
    mtu: u32,
    /// End after this long, like "30 s"
    #[arg(long, value_name = "SPAN")]
    duration: Option<Span>,
    /// Write the certificate here, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Write down what becomes of each packet: a line of JSON that says the form, then
    /// fixed-size records for numpy.fromfile
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Write the packets themselves, as they enter and leave each direction and as they are
    /// dropped, for Wireshark (pcapng): a file, or a directory to put one into
    #[arg(long, value_name = "PATH")]
    capture: Option<PathBuf>,
    /// Put keys into the capture that programs log here while it runs, so that it can be
    /// read: what they call SSLKEYLOGFILE
    #[arg(long, value_name = "FILE", requires = "capture")]
    key_log: Option<PathBuf>,
    /// Print a line with rates, queues and drops to standard error every second
    #[arg(long)]
    progress: bool,
    /// Where `bentpipe link set` and `bentpipe link show` reach this emulator, a Unix
    /// socket for root alone; /run/bentpipe/emulate-PID.sock unless given
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Seed of the losses, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Where one end of a hop is to be.
#[derive(Debug, Clone)]
struct Place {
    namespace: String,
    device: Option<String>,
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // A path is a namespace's own name, as in /proc/1234/ns/net.
        let (namespace, device) = match text.split_once('/') {
            Some((namespace, device)) if !text.starts_with('/') => (namespace, Some(device)),
            _ => (text, None),
        };
        if namespace.is_empty() {
            return Err("a network namespace's name, or a path like /proc/PID/ns/net".into());
        }
        if let Some(device) = device {
            tun::check_name(device).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            device: device.map(str::to_owned),
        })
    }
}

/// A terminal's place and a gateway's, each with its addresses.
#[derive(Debug, Clone)]
struct Ends {
    terminal: (Place, Vec<IpNet>),
    gateway: (Place, Vec<IpNet>),
}

impl FromStr for Ends {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = |text: &str| {
            let mut parts = text.split(',');
            let place = parts.next().unwrap_or_default().parse()?;
            let addresses = parts
                .map(|part| {
                    part.parse()
                        .map_err(|_| format!("{part:?} is not an address like 10.0.0.1/30"))
                })
                .collect::<Result<_, String>>()?;
            Ok::<_, String>((place, addresses))
        };
        let (terminal, gateway) = text
            .split_once('=')
            .ok_or("terminal and gateway with a \"=\" between them, like term1=gw/sat1")?;
        Ok(Self {
            terminal: end(terminal)?,
            gateway: end(gateway)?,
        })
    }
}

impl Place {
    fn open(&self, default: &str, mtu: u32, addresses: &[IpNet]) -> Result<End, Failure> {
        let namespace = Namespace::open(&self.namespace).map_err(namespace_failure)?;
        Ok(End {
            namespace,
            tun: TunSpec {
                device: self.device.clone().unwrap_or_else(|| default.to_owned()),
                mtu,
                addresses: addresses.to_vec(),
            },
        })
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let scenario = link::load(&command.scenario)?;
    // Before the run, so that a file that cannot be written costs no run.
    let create =
        |path: &PathBuf| std::fs::File::create(path).map_err(|error| Failure::file(path, error));
    let certificate_file = command.certificate.as_ref().map(create).transpose()?;
    let records_file = command.records.as_ref().map(create).transpose()?;
    let capture_file = command
        .capture
        .as_ref()
        .map(|path| create_capture(path, &scenario.name))
        .transpose()?;
    if let Some(path) = &command.key_log {
        check_key_log(path)?;
    }
    let plans = plans(command, &scenario)?;
    let socket = ControlSocket::bind(command.control.as_deref())?;
    let links = RunningLinks {
        scenario: scenario.name.clone(),
        directory: scenario_directory(&command.scenario),
        names: plans.iter().map(|plan| plan.name.clone()).collect(),
    };
    let mut emulator = Emulator::create(
        &scenario.name,
        certificate::limit(scenario.satellite_rtt()),
        plans,
    )
    .map_err(emulator_failure)?;
    let namespaces = emulator.take_namespaces();
    if let Some(file) = records_file {
        emulator.record(file).context("the records")?;
    }

    if let Some(file) = capture_file {
        emulator
            .capture(file, command.key_log.clone())
            .context("the capture")?;
    }

    let control = emulator.control();
    handle_signals(emulator.control())?;
    let socket = socket
        .map(|socket| socket.serve(emulator.control(), links))
        .transpose()?;
    println!("ready: {}", scenario.name);
    if let Some(socket) = &socket {
        println!("control: {}", socket.path().display());
    }
    std::io::stdout().flush().context("standard output")?;

    let duration = command.duration;
    let (done, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("emulator".into())
        .spawn(move || {
            // The receiver waits until this is sent.
            let _ = done.send(emulator.run(duration));
        })
        .context("cannot start a thread")?;
    let mut orphaned = None;
    let mut progress = command.progress.then(Progress::default);
    let certificate = loop {
        match ended.recv_timeout(LOOK) {
            Ok(certificate) => break certificate.map_err(emulator_failure)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Runtime(anyhow!("the emulator's thread has died")));
            }
        }
        if let Some(gone) = namespaces.iter().find(|namespace| !namespace.is_named()) {
            orphaned = Some(format!("the network namespace {gone} was deleted"));
            control.stop();
        } else if let (Some(progress), Some(statuses)) = (&mut progress, control.status()) {
            eprintln!("{}", progress.line(&statuses));
        }
    };
    let certificate = match orphaned {
        Some(fault) => certificate.spoilt(fault),
        None => certificate,
    };
    print!("{certificate}");
    if let Some(file) = certificate_file {
        write_json(&certificate, file).context("the certificate")?;
    }
    match certificate.fault {
        Some(fault) => Err(Failure::Runtime(anyhow!(fault))),
        None => Ok(()),
    }
}

/// SIGINT and SIGTERM end the run. SIGUSR1 prints a certificate of the time since the last
/// one, as a line of JSON behind "interval ": so each of many measurements can have its own.
fn handle_signals(control: ControlHandle) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGUSR1]).context("cannot wait for signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal != SIGUSR1 {
                    control.stop();
                } else if let Some(certificate) = control.interval_certificate() {
                    match serde_json::to_string(&certificate) {
                        Ok(json) => println!("interval {json}"),
                        Err(error) => tracing::error!("an interval's certificate: {error}"),
                    }
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// The capture, for its owner alone: it has what others sent, and may have their keys.
fn create_capture(path: &Path, scenario: &str) -> Result<File, Failure> {
    let path = if path.is_dir() {
        &path.join(format!("{scenario}.pcapng"))
    } else {
        path
    };
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| Failure::file(path, error))
}

/// A key log that is not there yet may still come, one that cannot be read never does.
fn check_key_log(path: &Path) -> Result<(), Failure> {
    match File::open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::file(path, error))
        }
        _ => Ok(()),
    }
}

/// Where scenarios lie that are named without their path.
fn scenario_directory(scenario: &Path) -> PathBuf {
    let absolute = std::path::absolute(scenario).unwrap_or_else(|_| scenario.to_owned());
    absolute.parent().map(Path::to_owned).unwrap_or_default()
}

fn plans(command: &Command, scenario: &Scenario) -> Result<Vec<LinkPlan>, Failure> {
    let seed = command.seed.unwrap_or(scenario.seed);
    let mtu = command.mtu;
    let hop = |name: String, ends: &Ends, number| {
        let end = |(place, addresses): &(Place, Vec<IpNet>)| place.open("sat0", mtu, addresses);
        let new_address_at = new_addresses(command, scenario, ends)?;
        Ok::<_, Failure>(LinkPlan {
            name,
            terminal: end(&ends.terminal)?,
            gateway: end(&ends.gateway)?,
            forward: scenario.forward.clone(),
            r#return: scenario.r#return.clone(),
            new_address_at,
            seeds: Seeds::of_link(seed, number),
        })
    };
    let mut plans = Vec::new();
    if let (Some(terminal), Some(gateway)) = (&command.terminal, &command.gateway) {
        let ends = Ends {
            terminal: (terminal.clone(), command.terminal_address.clone()),
            gateway: (gateway.clone(), command.gateway_address.clone()),
        };
        plans.push(hop("satellite".into(), &ends, 0)?);
    }
    for (number, ends) in (1..).zip(&command.link) {
        plans.push(hop(format!("satellite-{number}"), ends, number)?);
    }
    if let (Some(gateway), Some(server)) = (&command.ground_gateway, &command.ground_server) {
        let ground: DirectionSpec = scenario
            .ground
            .as_ref()
            .ok_or_else(|| {
                Failure::file(
                    &command.scenario,
                    "--ground-gateway and --ground-server need a [ground] table with a delay, like delay = \"40 ms\"",
                )
            })?
            .direction();
        plans.push(LinkPlan {
            name: "ground".into(),
            terminal: gateway.open("gnd0", mtu, &command.ground_gateway_address)?,
            gateway: server.open("gnd0", mtu, &command.ground_server_address)?,
            forward: ground.clone(),
            r#return: ground,
            new_address_at: Vec::new(),
            seeds: Seeds::of_ground(seed, 0),
        });
    }
    Ok(plans)
}

/// When the terminal gets new addresses, checked: there are such.
fn new_addresses(
    command: &Command,
    scenario: &Scenario,
    ends: &Ends,
) -> Result<Vec<Span>, Failure> {
    let switches = scenario.switch.iter().enumerate();
    let mut own = ends.terminal.1.clone();
    let mut moments = Vec::new();
    for (number, switch) in switches.filter(|(_, switch)| switch.new_address) {
        own = next_addresses(&own, &ends.gateway.1).map_err(|error| {
            Failure::file(
                &command.scenario,
                format!("switch.{number}.new_address = true: {error}"),
            )
        })?;
        moments.push(switch.at);
    }
    Ok(moments)
}

/// How often the run is looked at from outside.
const LOOK: Duration = Duration::from_secs(1);

/// The run as one line each second.
#[derive(Default)]
struct Progress {
    seconds: u64,
    /// Bytes delivered until the last line.
    before: Vec<u64>,
}

impl Progress {
    fn line(&mut self, statuses: &[DirectionStatus]) -> String {
        self.seconds += LOOK.as_secs();
        let directions = statuses.iter().enumerate().map(|(index, status)| {
            let delivered = status.counters.delivered_bytes;
            let before = self.before.get(index).copied().unwrap_or(0);
            format!(
                "{} {}: {:.3} Mbit/s, queue {} kB, dropped {}, late {:.0} us (p99)",
                status.link,
                status.direction,
                (delivered - before) as f64 * 8e-6 / LOOK.as_secs_f64(),
                status.queue_bytes / 1000,
                status.counters.dropped.total(),
                status.late_p99_us
            )
        });
        let line = directions.collect::<Vec<_>>().join(" | ");
        self.before = statuses
            .iter()
            .map(|status| status.counters.delivered_bytes)
            .collect();
        format!("{} s  {line}", self.seconds)
    }
}

fn write_json(certificate: &Certificate, mut file: std::fs::File) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut file, certificate)?;
    writeln!(file)?;
    Ok(())
}

fn namespace_failure(error: NamespaceError) -> Failure {
    Failure::Runtime(error.into())
}

fn emulator_failure(error: EmulatorError) -> Failure {
    match error {
        EmulatorError::Tun(TunError::Name { .. }) => Failure::Configuration(error.to_string()),
        error => Failure::Runtime(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<(String, Option<String>), String> {
        text.parse::<Place>()
            .map(|place| (place.namespace, place.device))
    }

    #[test]
    fn a_place_is_a_namespace_with_or_without_a_device() {
        assert_eq!(place("gw"), Ok(("gw".into(), None)));
        assert_eq!(place("gw/sat1"), Ok(("gw".into(), Some("sat1".into()))));
        assert_eq!(
            place("/proc/42/ns/net"),
            Ok(("/proc/42/ns/net".into(), None))
        );
    }

    #[test]
    fn a_link_has_two_ends_with_their_addresses() {
        let ends: Ends = "t1,10.0.0.1/30,fd00::1/64=gw/sat1".parse().unwrap();
        assert_eq!(ends.terminal.0.namespace, "t1");
        assert_eq!(ends.terminal.1.len(), 2);
        assert_eq!(ends.gateway.0.device.as_deref(), Some("sat1"));
        for text in ["t1", "t1=", "t1,10.0.0.1=gw", "=gw"] {
            assert!(text.parse::<Ends>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_device_must_have_a_name_that_the_kernel_takes() {
        for text in ["gw/", "gw/a b", "gw/longer-than-fifteen", "gw/..", ""] {
            assert!(place(text).is_err(), "{text:?}");
        }
    }
}
