//! Records of what became of each packet, in a file.
//!
//! The file begins with one line of JSON, which says what follows: fixed-size records
//! in the form that numpy calls a structured dtype. To read it:
//!
//! ```python
//! with open("packets.bin", "rb") as file:
//!     header = json.loads(file.readline())
//!     packets = numpy.fromfile(file, dtype=[tuple(field) for field in header["record"]])
//! ```
//!
//! While the run goes on, the file has all that came before somebody last asked how it does.

use std::fs::File;
use std::io::{self, Write};
use std::time::SystemTime;

use bentpipe_link::Cause;
use bentpipe_units::Time;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::direction::{DirectionId, DirectionName};
use crate::spool::{Incomplete, Sink, Spool};

/// Names this form of the file.
const SCHEMA: &str = "bentpipe/packets/1";
/// Bytes of a record: the sum of [`FIELDS`].
const SIZE: usize = 30;

/// A record's fields, in their order, little-endian.
const FIELDS: [(&str, &str); 7] = [
    // When the emulator took the packet, and when the model let it out or dropped it, since the
    // header's `begun_ns`.
    ("entered_ns", "<u8"),
    ("left_ns", "<u8"),
    // How much later than `left_ns` the packet was through to the other side.
    ("late_ns", "<u4"),
    // Bytes that waited for the transmitter when the packet came in.
    ("queue_bytes", "<u4"),
    ("length", "<u2"),
    // Index into the header's `directions`, and into its `fates`.
    ("direction", "<u2"),
    ("fate", "<u2"),
];

/// What became of one packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub entered: Time,
    pub left: Time,
    pub late_ns: u64,
    pub queue: u64,
    pub length: usize,
    pub direction: DirectionId,
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered,
    Dropped(Cause),
    /// The model delivered it, the other side's stack refused it.
    Unwritten,
}

impl Fate {
    pub fn number(self) -> u16 {
        let number = match self {
            Self::Delivered => 0,
            Self::Unwritten => 1,
            Self::Dropped(cause) => 2 + cause as usize,
        };
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    pub fn names() -> Vec<&'static str> {
        let causes = Cause::ALL.into_iter().map(Cause::name);
        ["delivered", "unwritten"]
            .into_iter()
            .chain(causes)
            .collect()
    }
}

impl Record {
    fn put(&self, to: &mut Vec<u8>) {
        // What does not fit is as good as the largest number that does.
        let u32 = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let u16 = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
        to.extend_from_slice(&self.entered.as_nanos().to_le_bytes());
        to.extend_from_slice(&self.left.as_nanos().to_le_bytes());
        to.extend_from_slice(&u32(self.late_ns).to_le_bytes());
        to.extend_from_slice(&u32(self.queue).to_le_bytes());
        to.extend_from_slice(&u16(self.length).to_le_bytes());
        to.extend_from_slice(&u16(self.direction.index()).to_le_bytes());
        to.extend_from_slice(&self.fate.number().to_le_bytes());
    }
}

/// The first line of a file of packet records.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PacketsHeader")]
struct Header<'a> {
    /// Names this form of the file.
    schema: &'static str,
    /// The scenario's name.
    scenario: &'a str,
    /// When the run began, nanoseconds since 1970.
    begun_ns: u64,
    /// The directions that a record's `direction` counts.
    directions: Vec<NamedDirection<'a>>,
    /// What a record's `fate` counts.
    fates: Vec<&'static str>,
    /// The fields of a record, each with its name and its type as numpy writes it.
    record: [(&'static str, &'static str); FIELDS.len()],
}

/// One direction of one link.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NamedDirection")]
struct NamedDirection<'a> {
    /// The link's name.
    link: &'a str,
    /// Which of its directions.
    name: DirectionName,
}

/// JSON Schema of the line that a file of packet records begins with.
pub fn schema() -> Schema {
    schemars::schema_for!(Header<'static>)
}

/// Writes records, on a thread of its own.
#[derive(Debug)]
pub(super) struct Recorder {
    spool: Spool,
    scenario: String,
    links: Vec<String>,
}

/// The other thread's end.
struct Writer(File);

impl Sink for Writer {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0.write_all(chunk)
    }
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Recorder {
    /// Of these links, each with two directions.
    pub fn new(file: File, scenario: &str, links: Vec<String>) -> io::Result<Self> {
        Ok(Self {
            spool: Spool::new("records", Writer(file))?,
            scenario: scenario.to_owned(),
            links,
        })
    }

    /// Writes the header: the run begins now.
    pub fn begin(&mut self) {
        let header = Header {
            schema: SCHEMA,
            scenario: &self.scenario,
            begun_ns: nanos_since_1970(),
            directions: self
                .links
                .iter()
                .flat_map(|link| DirectionName::BOTH.map(|name| NamedDirection { link, name }))
                .collect(),
            fates: Fate::names(),
            record: FIELDS,
        };
        let mut line = serde_json::to_vec(&header).expect("a header is plain data");
        line.push(b'\n');
        self.spool
            .add(line.len(), |chunk| chunk.extend_from_slice(&line));
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        self.spool.add(SIZE, |chunk| record.put(chunk));
    }

    /// Writes what there is, for whoever reads the file now.
    pub fn hand_over(&mut self) {
        self.spool.hand_over();
    }

    /// Writes what is left and waits for it.
    pub fn finish(self) -> Result<(), Incomplete> {
        self.spool.finish()
    }
}

/// The time of day.
pub(super) fn nanos_since_1970() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_long_as_its_fields_say() {
        let widths = FIELDS.map(|(_, kind)| kind.trim_start_matches("<u").parse::<usize>());
        assert_eq!(widths.into_iter().map(Result::unwrap).sum::<usize>(), SIZE);
        let mut bytes = Vec::new();
        record(Fate::Delivered).put(&mut bytes);
        assert_eq!(bytes.len(), SIZE);
    }

    #[test]
    fn every_fate_has_its_name() {
        assert_eq!(
            Fate::names()[usize::from(Fate::Delivered.number())],
            "delivered"
        );
        for cause in Cause::ALL {
            let number = usize::from(Fate::Dropped(cause).number());
            assert_eq!(Fate::names()[number], cause.name());
        }
    }

    #[test]
    fn what_is_too_large_for_its_field_is_cut_off_not_wrapped() {
        let mut bytes = Vec::new();
        Record {
            late_ns: u64::MAX,
            ..record(Fate::Unwritten)
        }
        .put(&mut bytes);
        assert_eq!(bytes[16..20], [0xff; 4]);
    }

    #[test]
    fn more_records_than_a_chunk_all_reach_the_file() {
        const MANY: usize = 10_007;
        let path = std::env::temp_dir().join(format!("bentpipe-records-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut recorder = Recorder::new(file, "test", vec!["satellite".into()]).unwrap();
        recorder.begin();
        for _ in 0..MANY {
            recorder.add(&record(Fate::Delivered));
        }
        recorder.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(bytes.len() - header, MANY * SIZE);
        let header: serde_json::Value = serde_json::from_slice(&bytes[..header]).unwrap();
        assert_eq!(header["directions"][1]["name"], "return");
        assert!(header["begun_ns"].as_u64().unwrap() > 0);
    }

    fn record(fate: Fate) -> Record {
        Record {
            entered: Time::from_nanos(1),
            left: Time::from_nanos(2),
            late_ns: 3,
            queue: 4,
            length: 5,
            direction: DirectionId::at(6),
            fate,
        }
    }
}
