//! Options of sockets that no library offers.

use std::io;
use std::os::fd::AsRawFd;

/// The value of an option that is one C int.
pub(crate) fn get(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>()
        .try_into()
        .expect("the size of an int fits");
    // SAFETY: the descriptor is open for the length of the call, which writes no more than the
    // one C int that it is given.
    #[expect(unsafe_code, reason = "no library offers these options")]
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

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
