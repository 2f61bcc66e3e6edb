//! Time and randomness, in place of the operating system's.
//!
//! A thread that [`simulate`]s reads the time it is given, and random bytes that follow from its seed, also
//! in libraries that ask the operating system: this module defines `clock_gettime` and `getrandom` for the
//! whole program. All other threads get what the system says.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::panic;
use std::sync::Once;

/// When simulations begin, in seconds since the epoch.
pub const START: u64 = 1_700_000_000;

thread_local! {
    /// Nanoseconds since the epoch, if this thread simulates.
    static NOW: Cell<Option<u64>> = const { Cell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Has this thread simulate from now on: its clock stands at [`START`], its random bytes follow from a seed.
pub fn simulate(seed: u64) {
    static NOTICED: Once = Once::new();
    NOW.set(Some(START * 1_000_000_000));
    NOTICED.call_once(notice_panics);
    RANDOM.set(seed ^ 0x9e37_79b9_7f4a_7c15);
}

/// What panicked on this thread since it simulates, also in tasks, whose runtime keeps it from the thread.
pub fn take_panics() -> Vec<String> {
    PANICS.take()
}

/// Has threads that simulate remember their panics instead of printing them.
fn notice_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if NOW.get().is_none() {
            return usual(panic);
        }
        PANICS.with_borrow_mut(|panics| panics.push(panic.to_string().replace('\n', " ")));
    }));
}

/// Sets this thread's clock to so many nanoseconds after [`START`].
pub fn set_clock(nanos: u64) {
    NOW.set(Some(START * 1_000_000_000 + nanos));
}

/// The time of this thread's simulation, or the system's.
///
/// # Safety
///
/// As of the C function: `time` has to be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    match NOW.get() {
        Some(now) => {
            let time_of = |part: u64| c_long::try_from(part).unwrap_or(c_long::MAX);
            // SAFETY: the caller vouches for the pointer.
            unsafe {
                (*time).tv_sec = time_of(now / 1_000_000_000);
                (*time).tv_nsec = time_of(now % 1_000_000_000);
            }
            0
        }
        // SAFETY: the arguments are those that the caller has for this very call.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) }.try_into().unwrap_or(-1),
    }
}

/// Random bytes that follow from the seed of this thread's simulation, or the system's.
///
/// # Safety
///
/// As of the C function: `buffer` has to be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if NOW.get().is_none() {
        // SAFETY: the arguments are those that the caller has for this very call.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) }.try_into().unwrap_or(-1);
    }
    for place in 0..length {
        // SAFETY: the caller vouches for so many bytes.
        unsafe { buffer.cast::<u8>().add(place).write(next_byte()) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// The next of a xorshift generator's bytes.
fn next_byte() -> u8 {
    let mut state = RANDOM.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.set(state);
    state.to_be_bytes()[0]
}
