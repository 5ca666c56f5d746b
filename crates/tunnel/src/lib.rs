//! Terminal and gateway, without the machine.
//!
//! Nothing here opens a socket, reads a clock or draws a random number: sockets,
//! dialler and runtime are handed in (see [`sockets`]), so the daemon, the tests
//! and the simulator run the same code.
//!
//! In a flow's order:
//!
//! 1. [`terminal`] takes an application's connection and its [`target`], and has one
//!    warm [`session`] with the gateway ready;
//! 2. [`wire`] says CONNECT in HTTP/3 and frames the bytes;
//! 3. [`flow`] carries both directions until both have ended, or one has failed;
//! 4. [`gateway`] authenticates the session, asks its egress rules whether the target
//!    is allowed, and dials it.
//!
//! Who may talk to whom is settled by [`identity`]; windows and controller by
//! [`transport`]; what a session learns of its path is kept in [`paths`].

pub mod marking;
pub mod sockets;
pub mod target;
pub mod identity;
pub mod transport;
pub mod paths;
pub mod session;
pub mod wire;
pub mod flow;
pub mod terminal;
pub mod gateway;
