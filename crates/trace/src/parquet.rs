//! Rows as Parquet: `packets.parquet`, `streams.parquet` and `http3.parquet`.
//!
//! Row groups of some 100,000 rows, compressed with Zstandard; a column has the name of
//! its field in [`PacketRow`], [`StreamRow`] or [`Http3Row`].

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::rows::{Http3Row, PacketRow, Sink, StreamRow};

/// Rows that are held before they are written.
const GROUP: usize = 1 << 17;
/// Bytes of their texts.
const MOST_TEXT: usize = 16 << 20;

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file could not be made.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A row group could not be written: a full disk, for instance.
    #[error("writing rows: {0}")]
    Parquet(#[from] ParquetError),
}

/// One column of a row group that is not written yet.
enum Column {
    Long(Vec<i64>),
    MaybeLong(Vec<i64>, Vec<i16>),
    Int(Vec<i32>),
    Bool(Vec<bool>),
    MaybeBool(Vec<bool>, Vec<i16>),
    Text(Vec<ByteArray>, Interned),
    MaybeText(Vec<ByteArray>, Vec<i16>, Interned),
}

/// The last text of a column: the next one is mostly the same.
#[derive(Default)]
struct Interned(Option<ByteArray>);

impl Interned {
    /// The text for a row, and how many bytes it takes.
    fn get(&mut self, text: &str) -> (ByteArray, usize) {
        match &self.0 {
            Some(last) if last.data() == text.as_bytes() => (last.clone(), 0),
            _ => (self.0.insert(ByteArray::from(text)).clone(), text.len()),
        }
    }
}

/// A value for a column, in the order of the columns.
enum Value<'a> {
    Long(u64),
    MaybeLong(Option<u64>),
    Int(u32),
    Bool(bool),
    MaybeBool(Option<bool>),
    Text(&'a str),
    MaybeText(Option<&'a str>),
}

struct Table {
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Column>,
    rows: usize,
    /// Bytes of their texts.
    text: usize,
}

impl Table {
    fn create(path: &Path, fields: &[(&str, Column)]) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|error| WriteError::Io {
            path: path.display().to_string(),
            error,
        })?;
        let schema = fields
            .iter()
            .map(|(name, column)| {
                let (physical, converted, repetition) = column.kind();
                Type::primitive_type_builder(name, physical)
                    .with_converted_type(converted)
                    .with_repetition(repetition)
                    .build()
                    .map(Arc::new)
            })
            .collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("row")
            .with_fields(schema)
            .build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(
                BufWriter::new(file),
                Arc::new(schema),
                Arc::new(properties),
            )?,
            columns: fields.iter().map(|(_, column)| column.empty()).collect(),
            rows: 0,
            text: 0,
        })
    }

    fn push<const N: usize>(&mut self, values: [Value<'_>; N]) -> Result<(), WriteError> {
        debug_assert_eq!(N, self.columns.len());
        for (column, value) in self.columns.iter_mut().zip(values) {
            self.text += column.push(value);
        }
        self.rows += 1;
        if self.rows == GROUP || self.text > MOST_TEXT {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("as many as there are columns");
            match column {
                Column::Long(values) => {
                    writer
                        .typed::<Int64Type>()
                        .write_batch(values, None, None)?;
                }
                Column::MaybeLong(values, there) => {
                    writer
                        .typed::<Int64Type>()
                        .write_batch(values, Some(there), None)?;
                }
                Column::Int(values) => {
                    writer
                        .typed::<Int32Type>()
                        .write_batch(values, None, None)?;
                }
                Column::Bool(values) => {
                    writer.typed::<BoolType>().write_batch(values, None, None)?;
                }
                Column::MaybeBool(values, there) => {
                    writer
                        .typed::<BoolType>()
                        .write_batch(values, Some(there), None)?;
                }
                Column::Text(values, _) => {
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(values, None, None)?;
                }
                Column::MaybeText(values, there, _) => {
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(values, Some(there), None)?;
                }
            }
            writer.close()?;
            *column = column.empty();
        }
        group.close()?;
        (self.rows, self.text) = (0, 0);
        Ok(())
    }

    fn close(mut self) -> Result<(), WriteError> {
        self.flush()?;
        self.writer.close()?;
        Ok(())
    }
}

impl Column {
    fn long() -> Self {
        Self::Long(Vec::new())
    }
    fn maybe_long() -> Self {
        Self::MaybeLong(Vec::new(), Vec::new())
    }
    fn int() -> Self {
        Self::Int(Vec::new())
    }
    fn bool() -> Self {
        Self::Bool(Vec::new())
    }
    fn maybe_bool() -> Self {
        Self::MaybeBool(Vec::new(), Vec::new())
    }
    fn text() -> Self {
        Self::Text(Vec::new(), Interned::default())
    }
    fn maybe_text() -> Self {
        Self::MaybeText(Vec::new(), Vec::new(), Interned::default())
    }

    fn empty(&self) -> Self {
        match self {
            Self::Long(_) => Self::long(),
            Self::MaybeLong(..) => Self::maybe_long(),
            Self::Int(_) => Self::int(),
            Self::Bool(_) => Self::bool(),
            Self::MaybeBool(..) => Self::maybe_bool(),
            Self::Text(..) => Self::text(),
            Self::MaybeText(..) => Self::maybe_text(),
        }
    }

    fn kind(&self) -> (Physical, ConvertedType, Repetition) {
        match self {
            Self::Long(_) => (Physical::INT64, ConvertedType::NONE, Repetition::REQUIRED),
            Self::MaybeLong(..) => (Physical::INT64, ConvertedType::NONE, Repetition::OPTIONAL),
            Self::Int(_) => (Physical::INT32, ConvertedType::NONE, Repetition::REQUIRED),
            Self::Bool(_) => (Physical::BOOLEAN, ConvertedType::NONE, Repetition::REQUIRED),
            Self::MaybeBool(..) => (Physical::BOOLEAN, ConvertedType::NONE, Repetition::OPTIONAL),
            Self::Text(..) => (
                Physical::BYTE_ARRAY,
                ConvertedType::UTF8,
                Repetition::REQUIRED,
            ),
            Self::MaybeText(..) => (
                Physical::BYTE_ARRAY,
                ConvertedType::UTF8,
                Repetition::OPTIONAL,
            ),
        }
    }

    /// One more row; how many bytes of text it takes.
    fn push(&mut self, value: Value<'_>) -> usize {
        // What a packet counts is below 2^62, and times are until the year 2262.
        let long = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        match (self, value) {
            (Self::Long(values), Value::Long(value)) => values.push(long(value)),
            (Self::MaybeLong(values, there), Value::MaybeLong(value)) => {
                there.push(value.is_some().into());
                values.extend(value.map(long));
            }
            (Self::Int(values), Value::Int(value)) => {
                values.push(i32::try_from(value).unwrap_or(i32::MAX));
            }
            (Self::Bool(values), Value::Bool(value)) => values.push(value),
            (Self::MaybeBool(values, there), Value::MaybeBool(value)) => {
                there.push(value.is_some().into());
                values.extend(value);
            }
            (Self::Text(values, interned), Value::Text(text)) => {
                let (text, bytes) = interned.get(text);
                values.push(text);
                return bytes;
            }
            (Self::MaybeText(values, there, interned), Value::MaybeText(text)) => {
                there.push(text.is_some().into());
                if let Some((text, bytes)) = text.map(|text| interned.get(text)) {
                    values.push(text);
                    return bytes;
                }
            }
            _ => unreachable!("a value of its column's kind"),
        }
        0
    }
}

/// Writes the tables into one directory.
pub struct Tables {
    packets: Table,
    streams: Table,
    http3: Table,
}

impl Tables {
    /// Makes `packets.parquet`, `streams.parquet` and `http3.parquet` in `directory`, which is there.
    pub fn create(directory: &Path) -> Result<Self, WriteError> {
        let packets = [
            ("frame", Column::long()),
            ("time_ns", Column::long()),
            ("interface", Column::int()),
            ("connection", Column::int()),
            ("protocol", Column::text()),
            ("from_client", Column::bool()),
            ("kind", Column::text()),
            ("number", Column::maybe_long()),
            ("size", Column::int()),
            ("datagram", Column::int()),
            ("place", Column::int()),
            ("ecn", Column::int()),
            ("key_phase", Column::maybe_bool()),
            ("frames", Column::text()),
            ("ack", Column::maybe_long()),
            ("ack_delay_us", Column::maybe_long()),
            ("stream_bytes", Column::int()),
            ("error", Column::maybe_text()),
        ];
        let streams = [
            ("frame", Column::long()),
            ("time_ns", Column::long()),
            ("interface", Column::int()),
            ("connection", Column::int()),
            ("protocol", Column::text()),
            ("from_client", Column::bool()),
            ("number", Column::long()),
            ("stream", Column::long()),
            ("offset", Column::long()),
            ("length", Column::long()),
            ("fin", Column::bool()),
            ("repeated", Column::long()),
        ];
        let http3 = [
            ("frame", Column::long()),
            ("time_ns", Column::long()),
            ("interface", Column::int()),
            ("connection", Column::int()),
            ("from_client", Column::bool()),
            ("stream", Column::long()),
            ("offset", Column::maybe_long()),
            ("kind", Column::text()),
            ("length", Column::maybe_long()),
            ("fields", Column::maybe_text()),
        ];
        Ok(Self {
            http3: Table::create(&directory.join("http3.parquet"), &http3)?,
            packets: Table::create(&directory.join("packets.parquet"), &packets)?,
            streams: Table::create(&directory.join("streams.parquet"), &streams)?,
        })
    }

    /// Writes what is held, and the files' ends.
    pub fn close(self) -> Result<(), WriteError> {
        self.packets.close()?;
        self.streams.close()?;
        self.http3.close()
    }
}

impl Sink for Tables {
    type Error = WriteError;

    fn packet(&mut self, row: &PacketRow<'_>) -> Result<(), WriteError> {
        self.packets.push([
            Value::Long(row.frame),
            Value::Long(row.time_ns),
            Value::Int(row.interface),
            Value::Int(row.connection),
            Value::Text(row.protocol),
            Value::Bool(row.from_client),
            Value::Text(row.kind),
            Value::MaybeLong(row.number),
            Value::Int(row.size),
            Value::Int(row.datagram),
            Value::Int(row.place),
            Value::Int(row.ecn.into()),
            Value::MaybeBool(row.key_phase),
            Value::Text(row.frames),
            Value::MaybeLong(row.ack),
            Value::MaybeLong(row.ack_delay_us),
            Value::Int(row.stream_bytes),
            Value::MaybeText(row.error),
        ])
    }

    fn stream(&mut self, row: &StreamRow) -> Result<(), WriteError> {
        self.streams.push([
            Value::Long(row.frame),
            Value::Long(row.time_ns),
            Value::Int(row.interface),
            Value::Int(row.connection),
            Value::Text(row.protocol),
            Value::Bool(row.from_client),
            Value::Long(row.number),
            Value::Long(row.stream),
            Value::Long(row.offset),
            Value::Long(row.length),
            Value::Bool(row.fin),
            Value::Long(row.repeated),
        ])
    }

    fn http3(&mut self, row: &Http3Row<'_>) -> Result<(), WriteError> {
        self.http3.push([
            Value::Long(row.frame),
            Value::Long(row.time_ns),
            Value::Int(row.interface),
            Value::Int(row.connection),
            Value::Bool(row.from_client),
            Value::Long(row.stream),
            Value::MaybeLong(row.http3.offset),
            Value::Text(&row.http3.kind),
            Value::MaybeLong(row.http3.length),
            Value::MaybeText(row.http3.fields.as_deref()),
        ])
    }
}
