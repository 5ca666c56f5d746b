//! Options of sockets that no library offers.

use std::io;
use std::os::fd::AsRawFd;

/// Sets an option that takes one C int.
pub(crate) fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>()
        .try_into()
        .expect("the size of an int fits");
    // SAFETY: the descriptor is open for the length of the call, and the value is the one C
    // int that these options take.
    #[expect(unsafe_code, reason = "no library offers these options")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
