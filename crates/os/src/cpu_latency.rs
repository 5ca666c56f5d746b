//! The latency that idle processors may take to wake up, bounded while packets flow.
//!
//! A processor that sleeps takes some ten microseconds longer to see to a packet or a timer
//! than one that waits in a loop, and the deeper it sleeps the longer. What asks the kernel to
//! let none sleep is a latency of zero on `/dev/cpu_dma_latency`, for as long as the descriptor
//! is open (Documentation/power/pm_qos_interface). That costs a processor's full power, so it is
//! asked for only while packets flow.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use bentpipe_units::{Span, Time};

/// Where the kernel is asked.
pub const DEVICE: &str = "/dev/cpu_dma_latency";
/// How long after the last packet processors may sleep again. Interactive traffic pauses
/// for less.
const LULL: Span = Span::from_millis(1000);
/// Microseconds that a processor may take to wake up.
const NONE: i32 = 0;
/// More than any takes.
const ANY: i32 = i32::MAX;

/// What helps against an error at [`DEVICE`].
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "a kernel with CONFIG_CPU_IDLE; in a container pass the device in"
        }
        _ => "run as root, or give this user write access to it",
    }
}

/// Asks for processors without sleep states from each packet until a while after the last.
#[derive(Debug)]
pub struct CpuLatency<W: Write = File> {
    /// What takes the latency that is asked for; nothing once it has refused.
    request: Option<W>,
    flow: Flow,
}

impl CpuLatency {
    /// With the kernel's own device, or without any, and why.
    pub fn claim() -> (Self, io::Result<()>) {
        let opened = OpenOptions::new()
            .write(true)
            .open(DEVICE)
            .and_then(|mut device| ask(&mut device, ANY).map(|()| device));
        match opened {
            Ok(device) => (Self::new(Some(device)), Ok(())),
            Err(error) => (Self::new(None), Err(error)),
        }
    }
}

impl<W: Write> CpuLatency<W> {
    fn new(request: Option<W>) -> Self {
        Self {
            request,
            flow: Flow::default(),
        }
    }

    /// A packet has come in or left.
    pub fn packet(&mut self, now: Time) {
        if self.flow.packet(now) {
            self.ask(NONE);
        }
    }

    /// Takes the request back if it is time to.
    pub fn look(&mut self, now: Time) {
        if self.flow.look(now) {
            self.ask(ANY);
        }
    }

    /// When to [`Self::look`] next, if no packet comes before.
    pub fn ends(&self) -> Option<Time> {
        self.request.as_ref().and(self.flow.ends)
    }

    fn ask(&mut self, microseconds: i32) {
        if let Some(request) = &mut self.request
            && let Err(error) = ask(request, microseconds)
        {
            tracing::warn!("lateness may suffer: {DEVICE}: {error}");
            self.request = None;
        }
    }
}

fn ask(request: &mut impl Write, microseconds: i32) -> io::Result<()> {
    request.write_all(&microseconds.to_ne_bytes())
}

/// From a packet until none has come for a [`LULL`].
#[derive(Debug, Default)]
struct Flow {
    ends: Option<Time>,
}

impl Flow {
    /// A packet has come; `true`: packets flow now, and did not before.
    fn packet(&mut self, now: Time) -> bool {
        self.ends.replace(now + LULL).is_none()
    }

    /// `true`: they no longer flow, and did at the last look.
    fn look(&mut self, now: Time) -> bool {
        self.ends.take_if(|ends| *ends <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn packets_flow_until_none_has_come_for_a_second() {
        let mut flow = Flow::default();
        assert_eq!(flow.ends, None);
        assert!(!flow.look(at(0)), "nothing has flowed yet");
        assert!(flow.packet(at(10)), "the first");
        assert!(!flow.packet(at(900)), "not the first");
        assert_eq!(flow.ends, Some(at(1900)));
        assert!(!flow.look(at(1899)));
        assert!(flow.look(at(1900)));
        assert!(!flow.look(at(1901)), "said once");
        assert_eq!(flow.ends, None);
        assert!(flow.packet(at(5000)), "the first after a lull");
    }

    #[test]
    fn the_kernel_is_asked_once_for_each_beginning_and_each_end() {
        let mut cpu_latency = CpuLatency::new(Some(Vec::new()));
        for millis in [10, 20, 30, 1020, 1030, 2029, 2030, 3000] {
            cpu_latency.look(at(millis));
            if millis <= 1020 || millis == 3000 {
                cpu_latency.packet(at(millis));
            }
        }
        let asked: Vec<_> = cpu_latency
            .request
            .unwrap()
            .chunks(4)
            .map(<[u8]>::to_vec)
            .collect();
        assert_eq!(asked, [NONE, ANY, NONE].map(|it| it.to_ne_bytes().to_vec()));
    }

    #[test]
    fn who_is_refused_has_nothing_to_wake_up_for() {
        let mut none = CpuLatency::<Vec<u8>>::new(None);
        none.packet(at(1));
        assert_eq!(none.ends(), None);
        let mut room = [0u8; 2];
        let mut full = CpuLatency::new(Some(&mut room[..]));
        full.packet(at(1));
        assert_eq!(full.ends(), None, "refused in the middle of a run");
    }

    #[test]
    fn the_machine_bounds_its_latency_where_it_grants_it() {
        let (mut cpu_latency, granted) = CpuLatency::claim();
        if granted.is_err() {
            assert_eq!(cpu_latency.ends(), None);
            return;
        }
        cpu_latency.packet(at(1));
        assert_eq!(cpu_latency.ends(), Some(at(1001)));
        let mut latency = [0xff; 4];
        let mut device = File::open(DEVICE).unwrap();
        device.read_exact(&mut latency).unwrap();
        assert_eq!(i32::from_ne_bytes(latency), NONE);
    }
}
