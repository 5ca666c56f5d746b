//! Standard output and standard error of a daemon. Whoever reads them may stand still, as a log
//! collector does whose disk is stuck: that costs lines, and never time.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that wait to be written; more are lost, and counted.
const WAITING: usize = 4096;
/// What still waits at the end is written if that takes no longer.
const AT_THE_END: Duration = Duration::from_secs(1);

static OUTPUT: OnceLock<Queue> = OnceLock::new();
static ERRORS: OnceLock<Queue> = OnceLock::new();

/// Lines on their way to a thread that writes them.
#[derive(Debug, Clone)]
struct Queue {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    /// All before it has been written when this is answered.
    Last(SyncSender<()>),
}

/// From now on nobody waits for a line to be written.
pub fn never_wait() -> io::Result<()> {
    let output = Queue::start("output", io::stdout())?;
    let errors = Queue::start("errors", io::stderr())?;
    let _ = OUTPUT.set(output);
    let _ = ERRORS.set(errors);
    Ok(())
}

/// Waits until what was said has been written, but not for ever.
pub fn finish() {
    let deadline = Instant::now() + AT_THE_END;
    for queue in [&OUTPUT, &ERRORS].into_iter().filter_map(OnceLock::get) {
        queue.finish(deadline);
    }
}

/// Where lines for whoever started the program go. What is written at once is a line.
pub fn output() -> Box<dyn Write> {
    writer(&OUTPUT, io::stdout)
}

/// Where the log goes.
pub fn errors() -> Box<dyn Write> {
    writer(&ERRORS, io::stderr)
}

fn writer<W: Write + 'static>(
    queue: &OnceLock<Queue>,
    direct: impl FnOnce() -> W,
) -> Box<dyn Write> {
    match queue.get() {
        Some(queue) => Box::new(queue.clone()),
        None => Box::new(direct()),
    }
}

impl Queue {
    fn start(name: &str, to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING);
        let queue = Self {
            lines,
            lost: Arc::default(),
        };
        let lost = queue.lost.clone();
        thread::Builder::new()
            .name(name.into())
            .spawn(move || write_all(to, &waiting, &lost))?;
        Ok(queue)
    }

    fn finish(&self, deadline: Instant) {
        let left = || deadline.saturating_duration_since(Instant::now());
        let (written, wait) = sync_channel(1);
        let mut last = Line::Last(written);
        while let Err(TrySendError::Full(again)) = self.lines.try_send(last) {
            if left().is_zero() {
                return;
            }
            last = again;
            thread::sleep(Duration::from_millis(10));
        }
        let _ = wait.recv_timeout(left());
    }
}

impl Write for Queue {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Line::Text(text.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what comes, for ever. A closed pipe ends no daemon.
fn write_all(mut to: impl Write, lines: &Receiver<Line>, lost: &AtomicU64) {
    while let Ok(line) = lines.recv() {
        match line {
            Line::Text(text) => {
                let _ = to.write_all(&text).and_then(|()| to.flush());
            }
            Line::Last(written) => {
                let _ = written.try_send(());
            }
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                to,
                "{lost} lines have been lost here: nobody read them in time"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A reader that stands still until it is told to go on.
    #[derive(Clone, Default)]
    struct Reader(Arc<Shared>);

    #[derive(Default)]
    struct Shared {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        reads: bool,
        text: Vec<u8>,
    }

    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let state = self.0.state.lock().unwrap();
            let waiting = self.0.changed.wait_while(state, |state| !state.reads);
            waiting.unwrap().text.extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_which_are_counted() {
        let reader = Reader::default();
        let mut queue = Queue::start("test", reader.clone()).unwrap();
        // One is with the thread, or will be.
        let most = WAITING + 1;
        for number in 0..most + 9 {
            let line = format!("line {number}\n");
            queue.write_all(line.as_bytes()).unwrap();
        }
        queue.finish(Instant::now());
        reader.0.state.lock().unwrap().reads = true;
        reader.0.changed.notify_all();
        queue.finish(Instant::now() + Duration::from_secs(60));
        let text = String::from_utf8(reader.0.state.lock().unwrap().text.clone()).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        let told = text.lines().find(|line| line.contains("lost")).unwrap();
        let lost: usize = told.split(' ').next().unwrap().parse().unwrap();
        let whole = text.lines().filter(|line| line.starts_with("line "));
        assert_eq!(whole.count() + lost, most + 9);
    }
}
