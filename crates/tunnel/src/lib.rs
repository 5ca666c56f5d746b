//! Terminal and gateway, without the machine.
//!
//! Nothing here opens a socket, reads a clock or draws a random number: sockets,
//! dialler and runtime are handed in (see [`outside`]), so the daemon, the tests
//! and the simulator run the same code.
//!
//! In a flow's order:
//!
//! 1. [`terminal`] takes an application's connection and its [`target`];
//! 2. [`session`] has the one warm connection to the gateway ready;
//! 3. [`wire`] says CONNECT in HTTP/3 and frames the bytes;
//! 4. [`flow`] carries both directions until both have ended, or one has failed;
//! 5. [`schedule`] decides which flow's bytes go first, [`stall`] how much one
//!    that is not read may hold;
//! 6. [`gateway`] authenticates the session, asks [`egress`] whether the target
//!    is allowed, and dials it.
//!
//! Who may talk to whom is settled by [`identity`] and [`enrolment`]; windows and
//! controller by [`transport`].

pub mod outside;
pub mod target;
pub mod identity;
pub mod enrolment;
pub mod transport;
pub mod paths;
pub mod terminal;
pub mod session;
pub mod wire;
pub mod flow;
pub mod stall;
pub mod gateway;
pub mod egress;
