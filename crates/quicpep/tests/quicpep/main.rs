//! Clients, PEPs and servers with modelled links between them, in virtual time.

mod support;

mod chain;
mod conversation;
mod first_flight;
mod kosek;
mod memory;
mod pair;
mod quicly;
mod trouble;
