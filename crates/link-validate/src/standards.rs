//! Claims of standards.

use bentpipe_units::Time;

use super::probe::{burst, drain, forward};
use super::{Claim, banded};
use bentpipe_link::Direction;
use bentpipe_link::dvb::{self, Encapsulation};
use bentpipe_link::spec::{DvbS2, Radio};

pub(super) fn claims() -> Vec<Claim> {
    dvb_s2_rows()
}

/// The published rows at 40 Mbaud: symbols of a BBFRAME, its time, rates.
fn dvb_s2_rows() -> Vec<Claim> {
    let published = include_str!("../data/dvb-s2-at-40-mbaud.csv");
    let spec = DvbS2 {
        bandwidth: bentpipe_units::Frequency::from_hertz(50_000_000),
        roll_off: 0.25,
        modcod: Some(1),
        acm: None,
        radio: Radio::default(),
        tick: None,
        link_header: 14,
    };
    let (mut symbols_off, mut rows) = (0.0f64, 0);
    let (mut phy_off, mut ip_off, mut tcp_off) = (0.0f64, 0.0f64, 0.0f64);
    for row in published.lines().filter(|row| !row.starts_with('#')) {
        let cells: Vec<f64> = row
            .split(',')
            .filter_map(|cell| cell.parse().ok())
            .collect();
        let [id, symbols, _, phy, ip, tcp] = cells[..] else {
            continue;
        };
        let Some(modcod) = dvb::DVB_S2.iter().find(|modcod| f64::from(modcod.id) == id) else {
            continue;
        };
        rows += 1;
        let off = |ours: f64, theirs: f64| ((ours / theirs - 1.0) * 100.0).abs();
        symbols_off = symbols_off.max((f64::from(modcod.symbols()) - symbols).abs());
        phy_off = phy_off.max(off(40.0 * modcod.efficiency, phy));
        let rate = dvb::ip_rate(&spec, modcod, 1500) / 1e6;
        ip_off = ip_off.max(off(rate, ip));
        tcp_off = tcp_off.max(off(rate * 1448.0 / 1500.0, tcp));
    }
    let source = "ETSI EN 302 307-1, table 13, through OpenSAND's tables; 40 Mbaud, GSE";
    vec![
        banded(
            "DVB-S2: rows of MODCODs compared",
            source,
            (28.0, 28.0),
            f64::from(rows),
            (0, "rows"),
        ),
        banded(
            "DVB-S2: symbols of a BBFRAME, worst of 28",
            source,
            (0.0, 0.0),
            symbols_off,
            (0, "symbols off"),
        ),
        banded(
            "DVB-S2: rate of the carrier, worst of 28",
            source,
            (0.0, 0.1),
            phy_off,
            (3, "% off"),
        ),
        banded(
            "DVB-S2: rate at the IP level in packets of 1500 bytes, worst of 28",
            source,
            (0.0, 0.1),
            ip_off,
            (3, "% off"),
        ),
        banded(
            "DVB-S2: rate of TCP payload, worst of 28",
            source,
            (0.0, 0.1),
            tcp_off,
            (3, "% off"),
        ),
        measured_carrier(),
        banded(
            "BBFRAMEs that a packet of 1500 bytes lies in, QPSK 1/4, on average",
            "OpenSAND with Ethernet: 1.77",
            (1.74, 1.80),
            1.0 + 1.0 / Encapsulation::gse(14).packets_per_frame(1500, 2001),
            (3, "frames"),
        ),
    ]
}

/// The carrier as it runs, not as it is computed.
fn measured_carrier() -> Claim {
    let mut link = Direction::new(
        &forward(
            "delay = \"0 ms\"\nqueue = \"1 GB\"\nrate.dvb-s2 = { bandwidth = \"50 MHz\", roll_off = 0.25, modcod = 28, link_header = 14 }",
        ),
        1,
    );
    burst(&mut link, 150_000, 1500);
    let out = drain(&mut link, Time::from_nanos(10_000_000_000));
    banded(
        "DVB-S2: 32APSK 9/10 without ticks, measured over 10 s in packets of 1500 bytes",
        "OpenSAND's tables: 174.9 Mbit/s",
        (174.7, 175.1),
        out.len() as f64 * 1500.0 * 8.0 / 10.0 / 1e6,
        (2, "Mbit/s"),
    )
}
