//! Modulations and codings of DVB-S2, and reference waveforms of DVB-RCS2.
//!
//! Values: OpenSAND (CNES), `opensand-deploy/src/backend/backend.py` and
//! `opensand-core/src/dvb/dama/ForwardSchedulingS2.cpp`, which have them from
//! ETSI EN 302 307-1 (DVB-S2, normal frames, table 13) and ETSI EN 301 545-2
//! (DVB-RCS2, reference waveforms). Carrier over noise is Es/N0 for quasi error
//! free reception without implementation loss.

use bentpipe_units::truncated;

/// A modulation and coding of DVB-S2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct S2 {
    /// 1 to 28.
    pub id: u8,
    /// Modulation.
    pub modulation: &'static str,
    /// Rate of the code.
    pub code_rate: &'static str,
    /// Bits of payload in each symbol, as published.
    pub efficiency: f64,
    /// What it needs at the receiver, dB.
    pub es_n0: f64,
    /// Bytes of one BBFRAME.
    pub bytes: u32,
}

/// A reference waveform of DVB-RCS2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rcs2 {
    /// 3 to 22.
    pub id: u8,
    /// Modulation.
    pub modulation: &'static str,
    /// Rate of the code.
    pub code_rate: &'static str,
    /// What it needs at the receiver, dB.
    pub es_n0: f64,
    /// Symbols of one burst.
    pub symbols: u32,
    /// Bytes that one burst carries in OpenSAND: symbols, bits and code rate
    /// multiplied, without the preamble that the standard takes off.
    pub bytes: u32,
}

impl S2 {
    /// Symbols of one BBFRAME.
    pub fn symbols(&self) -> u32 {
        // OpenSAND rounds down, too; at most 32669.
        u32::try_from(truncated(f64::from(self.bytes) * 8.0 / self.efficiency)).unwrap_or(u32::MAX)
    }
}

/// The MODCOD of this number.
pub fn dvb_s2(id: u8) -> Option<&'static S2> {
    DVB_S2.iter().find(|modcod| modcod.id == id)
}

/// The waveform of this number.
pub fn dvb_rcs2(id: u8) -> Option<&'static Rcs2> {
    DVB_RCS2.iter().find(|waveform| waveform.id == id)
}

/// DVB-S2, normal frames.
#[rustfmt::skip]
pub const DVB_S2: [S2; 28] = [
    S2 { id: 1, modulation: "QPSK", code_rate: "1/4", efficiency: 0.49, es_n0: -2.35, bytes: 2001 },
    S2 { id: 2, modulation: "QPSK", code_rate: "1/3", efficiency: 0.656, es_n0: -1.24, bytes: 2676 },
    S2 { id: 3, modulation: "QPSK", code_rate: "2/5", efficiency: 0.789, es_n0: -0.3, bytes: 3216 },
    S2 { id: 4, modulation: "QPSK", code_rate: "1/2", efficiency: 0.988, es_n0: 1.0, bytes: 4026 },
    S2 { id: 5, modulation: "QPSK", code_rate: "3/5", efficiency: 1.188, es_n0: 2.23, bytes: 4836 },
    S2 { id: 6, modulation: "QPSK", code_rate: "2/3", efficiency: 1.322, es_n0: 3.1, bytes: 5380 },
    S2 { id: 7, modulation: "QPSK", code_rate: "3/4", efficiency: 1.487, es_n0: 4.03, bytes: 6051 },
    S2 { id: 8, modulation: "QPSK", code_rate: "4/5", efficiency: 1.587, es_n0: 4.68, bytes: 6456 },
    S2 { id: 9, modulation: "QPSK", code_rate: "5/6", efficiency: 1.655, es_n0: 5.18, bytes: 6730 },
    S2 { id: 10, modulation: "QPSK", code_rate: "8/9", efficiency: 1.767, es_n0: 6.2, bytes: 7184 },
    S2 { id: 11, modulation: "QPSK", code_rate: "9/10", efficiency: 1.789, es_n0: 6.42, bytes: 7274 },
    S2 { id: 12, modulation: "8PSK", code_rate: "3/5", efficiency: 1.78, es_n0: 5.5, bytes: 4836 },
    S2 { id: 13, modulation: "8PSK", code_rate: "2/3", efficiency: 1.981, es_n0: 6.62, bytes: 5380 },
    S2 { id: 14, modulation: "8PSK", code_rate: "3/4", efficiency: 2.228, es_n0: 7.91, bytes: 6051 },
    S2 { id: 15, modulation: "8PSK", code_rate: "5/6", efficiency: 2.479, es_n0: 9.35, bytes: 6730 },
    S2 { id: 16, modulation: "8PSK", code_rate: "8/9", efficiency: 2.646, es_n0: 10.69, bytes: 7184 },
    S2 { id: 17, modulation: "8PSK", code_rate: "9/10", efficiency: 2.679, es_n0: 10.98, bytes: 7274 },
    S2 { id: 18, modulation: "16APSK", code_rate: "2/3", efficiency: 2.637, es_n0: 8.97, bytes: 5380 },
    S2 { id: 19, modulation: "16APSK", code_rate: "3/4", efficiency: 2.967, es_n0: 10.21, bytes: 6051 },
    S2 { id: 20, modulation: "16APSK", code_rate: "4/5", efficiency: 3.166, es_n0: 11.03, bytes: 6456 },
    S2 { id: 21, modulation: "16APSK", code_rate: "5/6", efficiency: 3.3, es_n0: 11.61, bytes: 6730 },
    S2 { id: 22, modulation: "16APSK", code_rate: "8/9", efficiency: 3.523, es_n0: 12.89, bytes: 7184 },
    S2 { id: 23, modulation: "16APSK", code_rate: "9/10", efficiency: 3.567, es_n0: 13.13, bytes: 7274 },
    S2 { id: 24, modulation: "32APSK", code_rate: "3/4", efficiency: 3.703, es_n0: 12.73, bytes: 6051 },
    S2 { id: 25, modulation: "32APSK", code_rate: "4/5", efficiency: 3.952, es_n0: 13.64, bytes: 6456 },
    S2 { id: 26, modulation: "32APSK", code_rate: "5/6", efficiency: 4.12, es_n0: 14.28, bytes: 6730 },
    S2 { id: 27, modulation: "32APSK", code_rate: "8/9", efficiency: 4.398, es_n0: 15.69, bytes: 7184 },
    S2 { id: 28, modulation: "32APSK", code_rate: "9/10", efficiency: 4.453, es_n0: 16.05, bytes: 7274 },
];

/// DVB-RCS2, reference waveforms for linear modulation.
#[rustfmt::skip]
pub const DVB_RCS2: [Rcs2; 20] = [
    Rcs2 { id: 3, modulation: "QPSK", code_rate: "1/3", es_n0: 0.22, symbols: 536, bytes: 44 },
    Rcs2 { id: 4, modulation: "QPSK", code_rate: "1/2", es_n0: 2.34, symbols: 536, bytes: 67 },
    Rcs2 { id: 5, modulation: "QPSK", code_rate: "2/3", es_n0: 4.29, symbols: 536, bytes: 89 },
    Rcs2 { id: 6, modulation: "QPSK", code_rate: "3/4", es_n0: 5.36, symbols: 536, bytes: 100 },
    Rcs2 { id: 7, modulation: "QPSK", code_rate: "5/6", es_n0: 6.68, symbols: 536, bytes: 111 },
    Rcs2 { id: 8, modulation: "8PSK", code_rate: "2/3", es_n0: 8.08, symbols: 536, bytes: 134 },
    Rcs2 { id: 9, modulation: "8PSK", code_rate: "3/4", es_n0: 9.31, symbols: 536, bytes: 150 },
    Rcs2 { id: 10, modulation: "8PSK", code_rate: "5/6", es_n0: 10.82, symbols: 536, bytes: 167 },
    Rcs2 { id: 11, modulation: "16QAM", code_rate: "3/4", es_n0: 11.17, symbols: 536, bytes: 201 },
    Rcs2 { id: 12, modulation: "16QAM", code_rate: "5/6", es_n0: 12.56, symbols: 536, bytes: 223 },
    Rcs2 { id: 13, modulation: "QPSK", code_rate: "1/3", es_n0: -0.51, symbols: 1616, bytes: 134 },
    Rcs2 { id: 14, modulation: "QPSK", code_rate: "1/2", es_n0: 1.71, symbols: 1616, bytes: 202 },
    Rcs2 { id: 15, modulation: "QPSK", code_rate: "2/3", es_n0: 3.69, symbols: 1616, bytes: 269 },
    Rcs2 { id: 16, modulation: "QPSK", code_rate: "3/4", es_n0: 4.73, symbols: 1616, bytes: 303 },
    Rcs2 { id: 17, modulation: "QPSK", code_rate: "5/6", es_n0: 5.94, symbols: 1616, bytes: 336 },
    Rcs2 { id: 18, modulation: "8PSK", code_rate: "2/3", es_n0: 7.49, symbols: 1616, bytes: 404 },
    Rcs2 { id: 19, modulation: "8PSK", code_rate: "3/4", es_n0: 8.77, symbols: 1616, bytes: 454 },
    Rcs2 { id: 20, modulation: "8PSK", code_rate: "5/6", es_n0: 10.23, symbols: 1616, bytes: 505 },
    Rcs2 { id: 21, modulation: "16QAM", code_rate: "3/4", es_n0: 10.72, symbols: 1616, bytes: 606 },
    Rcs2 { id: 22, modulation: "16QAM", code_rate: "5/6", es_n0: 12.04, symbols: 1616, bytes: 673 },
];
