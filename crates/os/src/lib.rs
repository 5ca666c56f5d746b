//! The only crate that touches the machine.
