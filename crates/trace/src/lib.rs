//! Packet captures and qlogs as columns: QUIC decrypted, TCP by sequence number.
//!
//! A trace is read once, from front to back, and never held in memory. In the order in
//! which its bytes are met:
//!
//! 1. [`capture`] takes pcap and pcapng apart, compressed or not;
//! 2. [`ip`] finds the UDP datagram or TCP segment in a packet;
//! 3. [`keylog`] has the secrets, from a file or from the capture itself;
//! 4. [`quic`] attributes a datagram to its connection, decrypts its packets and reads
//!    their frames; [`tcp`] does what can be done without keys; [`http3`] reads the frames
//!    of HTTP/3 in its streams;
//! 5. [`rows`] is what comes out: a row a packet, a row a stream frame, a row an HTTP/3 frame;
//! 6. [`parquet`] writes rows, [`summary`] says what the connections did, `patterns`
//!    below it names the shapes of their transfers.
//!
//! [`read`] joins them; [`qlog`] gives the same rows from the logs of an implementation.

pub mod capture;
pub mod ip;
pub mod keylog;
pub mod quic;
pub mod tcp;
pub mod http3;
pub mod ranges;
pub mod rows;
pub mod parquet;
pub mod summary;
pub mod read;
pub mod qlog;
