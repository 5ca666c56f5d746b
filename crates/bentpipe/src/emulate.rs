//! `bentpipe emulate`: a link between network namespaces, in real time.

mod plan;
mod program;
mod progress;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use anyhow::{Context, anyhow};
use bentpipe_emulator::{Certificate, ControlHandle, Emulator, EmulatorError, certificate};
use bentpipe_os::realtime::Processors;
use bentpipe_os::tun::{self, TunError};
use bentpipe_units::Span;
use clap::Args;
use ipnet::IpNet;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use self::plan::{Ends, Place, address, plans, private_plan};
use self::program::{PrivateEnds, Program, Terminator};
use self::progress::{LOOK, Progress};
use crate::control::{ControlSocket, RunningLinks};
use crate::failure::{self, Failure};
use crate::scenario;

/// Run a scenario between TUN devices in network namespaces, in real time
///
/// With a program behind `--`, makes two namespaces, runs the program at the terminal's end
/// of the link and ends with it, with its exit code; nobody needs to be root where ordinary
/// users may make namespaces. The program finds the other end in BENTPIPE_GATEWAY_ADDRESS, and
/// its namespace in BENTPIPE_GATEWAY_NETNS, for `nsenter --net=$BENTPIPE_GATEWAY_NETNS SERVER &`.
///
/// Otherwise makes a device in each namespace that is named, moves packets between them as the
/// scenario says, and prints a certificate of punctuality at the end (SIGINT, SIGTERM
/// or --duration), and on SIGUSR1 one of the time since the last. The devices vanish with
/// the run.
#[derive(Debug, Args)]
pub struct Command {
    /// The scenario: a TOML file, or the name of one that comes with the program, like geo
    scenario: PathBuf,
    /// A program for the terminal's end, like bash
    #[arg(last = true, value_name = "COMMAND",
          conflicts_with_all = ["terminal", "gateway", "link", "ground_gateway", "ground_server"])]
    program: Vec<OsString>,
    /// The terminal's end of the satellite hop; the device is sat0 unless named
    #[arg(
        long,
        value_name = "NETNS[/DEV]",
        required_unless_present_any = ["link", "program"],
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
    #[arg(long, value_name = "CIDR", value_parser = address)]
    terminal_address: Vec<IpNet>,
    /// An address of the gateway's device
    #[arg(long, value_name = "CIDR", value_parser = address)]
    gateway_address: Vec<IpNet>,
    /// An address of the gateway's device of the ground hop
    #[arg(long, value_name = "CIDR", requires = "ground_gateway", value_parser = address)]
    ground_gateway_address: Vec<IpNet>,
    /// An address of the servers' device
    #[arg(long, value_name = "CIDR", requires = "ground_server", value_parser = address)]
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
    /// Keep the emulator's thread to this processor, and programs that it is to be punctual beside to others
    /// (taskset): several emulators may share one, and no program's system call holds them up then
    #[arg(long, value_name = "NUMBER")]
    processor: Option<usize>,
    /// Seed of the losses, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let scenario = scenario::load(&command.scenario)?;
    // Before the run, so that a file that cannot be written costs no run.
    let create =
        |path: &PathBuf| std::fs::File::create(path).map_err(|error| Failure::file(path, error));
    let certificate_file = command.certificate.as_ref().map(create).transpose()?;
    let chosen = (command.processor.map(chosen_processor)).transpose()?;
    let records_file = command.records.as_ref().map(create).transpose()?;
    let capture_file = command
        .capture
        .as_ref()
        .map(|path| create_capture(path, &scenario.name))
        .transpose()?;
    if let Some(path) = &command.key_log {
        check_key_log(path)?;
    }
    // Before there is a second thread.
    let ends = match command.program.is_empty() {
        true => None,
        false => Some(PrivateEnds::create()?),
    };
    let plans = match &ends {
        Some(ends) => vec![private_plan(command, &scenario, ends)?],
        None => plans(command, &scenario)?,
    };
    let addresses = plans
        .first()
        .map(|plan| [&plan.terminal, &plan.gateway].map(|end| end.tun.addresses.clone()));
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
    let socket = socket
        .map(|socket| socket.serve(emulator.control(), links))
        .transpose()?;
    let mut output = Output::for_run(command);
    writeln!(output, "ready: {}", scenario.name).context("standard output")?;
    if let Some(socket) = &socket {
        writeln!(output, "control: {}", socket.path().display()).context("standard output")?;
    }
    output.flush().context("standard output")?;

    // A program that shares the emulator's processor waits for every packet to be through.
    let (own, others) = match chosen {
        Some(chosen) => (Some(chosen), chosen.others()),
        None => ends.as_ref().and_then(|_| Processors::divide()).unzip(),
    };
    let program = match (&ends, &addresses) {
        (Some(ends), Some([terminal, gateway])) => Some(Program::start(
            ends,
            others.as_ref(),
            &command.program,
            [terminal, gateway],
        )?),
        _ => None,
    };
    let (waiting, terminator) = match program {
        Some((program, terminator)) => {
            let control = control.clone();
            let wait = move || {
                let ended = program.wait();
                control.stop();
                ended
            };
            let thread = std::thread::Builder::new()
                .name("program".into())
                .spawn(wait);
            (
                Some(thread.context("cannot start a thread")?),
                Some(Arc::new(terminator)),
            )
        }
        None => (None, None),
    };
    handle_signals(control.clone(), terminator.clone())?;
    let duration = command.duration;
    let (done, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("emulator".into())
        .spawn(move || {
            if let Some(Err(error)) = own.map(|own| own.keep_to()) {
                tracing::warn!("lateness may suffer: a processor of its own: {error}");
            }
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
    write!(output, "{certificate}").context("standard output")?;
    if let Some(file) = certificate_file {
        write_json(&certificate, file).context("the certificate")?;
    }
    let status = match (waiting, terminator) {
        (Some(waiting), Some(terminator)) => {
            terminator.terminate();
            let joined = waiting.join();
            Some(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        }
        _ => None,
    };
    if let Some(fault) = certificate.fault {
        return Err(Failure::Runtime(anyhow!(fault)));
    }
    match status
        .transpose()
        .context("the program")?
        .map(program::exit_code)
    {
        None | Some(0) => Ok(()),
        Some(code) => {
            // What is to be removed, is: the socket's file alone outlives a process.
            drop(socket);
            std::process::exit(code)
        }
    }
}

/// Where a run's own lines go: standard output belongs to the program, where there is one.
enum Output {
    Standard(std::io::Stdout),
    Error(std::io::Stderr),
}

impl Output {
    fn for_run(command: &Command) -> Self {
        if command.program.is_empty() {
            Self::Standard(std::io::stdout())
        } else {
            Self::Error(std::io::stderr())
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Standard(output) => output.write(bytes),
            Self::Error(output) => output.write(bytes),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Standard(output) => output.flush(),
            Self::Error(output) => output.flush(),
        }
    }
}

/// SIGINT and SIGTERM end the run; where a program runs at the terminal's end, an interrupt is
/// for it, and SIGTERM ends it first. SIGUSR1 prints a certificate of the time since the last
/// one, as a line of JSON behind "interval ": so each of many measurements can have its own.
fn handle_signals(control: ControlHandle, program: Option<Arc<Terminator>>) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGUSR1]).context("cannot wait for signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal != SIGUSR1 {
                    match &program {
                        Some(program) if signal == SIGTERM => program.terminate(),
                        Some(_) => {}
                        None => control.stop(),
                    }
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

fn chosen_processor(number: usize) -> Result<Processors, Failure> {
    Processors::chosen(number).map_err(|error| {
        let which = std::thread::available_parallelism().map_or(1, usize::from);
        Failure::Configuration(format!(
            "--processor {number}: no thread of this process may run there: {error}; processors count from 0, and this process keeps to {which} of them (`nproc --all`, `taskset -p $$`)"
        ))
    })
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
    match path.try_exists() {
        Ok(false) => Ok(()),
        _ => failure::open(path, "").map(drop),
    }
}

/// Where scenarios lie that are named without their path.
fn scenario_directory(scenario: &Path) -> PathBuf {
    let absolute = std::path::absolute(scenario).unwrap_or_else(|_| scenario.to_owned());
    absolute.parent().map(Path::to_owned).unwrap_or_default()
}

fn write_json(certificate: &Certificate, mut file: std::fs::File) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut file, certificate)?;
    writeln!(file)?;
    Ok(())
}

fn emulator_failure(error: EmulatorError) -> Failure {
    match error {
        EmulatorError::Tun(TunError::Name { .. }) | EmulatorError::Addresses(_) => {
            Failure::Configuration(error.to_string())
        }
        error => Failure::Runtime(error.into()),
    }
}
