//! A terminal and a gateway with a modelled link between them, in virtual time.

mod support;

mod address_change;
mod authentication;
mod budgets;
mod conversation;
mod dns;
mod early_data;
mod failover;
mod floods;
mod greedy;
mod ip;
mod keys;
mod limits;
mod liveness;
mod malformed_udp;
mod own_transport;
mod policy;
mod properties;
mod quic_choice;
mod restart;
mod shares;
mod udp;
