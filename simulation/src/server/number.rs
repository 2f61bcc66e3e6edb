//! Numbers of Lua, as C works with them.

/// A number as `%.17g` prints it, which is what a command gets of it.
pub(super) fn print(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e16 {
        return format!("{number:.0}");
    }
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').expect("it was printed with an exponent");
    let exponent: i32 = exponent.parse().expect("it was printed as a number");
    if !(-4..17).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.abs());
    }
    let decimals = usize::try_from(16 - exponent).expect("the exponent is below 17");
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

/// Without zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// The bytes of a number as an unsigned one of 64 bits, as C compilers convert one on x86-64.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cases outside the range come first")]
pub(super) fn to_unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number.is_nan() || number < -HALF {
        1 << 63
    } else if number < 0.0 {
        (number as i64).cast_unsigned()
    } else if number < 2.0 * HALF {
        number as u64
    } else {
        0
    }
}

/// A number as a whole one, as C compilers convert one on x86-64.
#[allow(clippy::cast_possible_truncation, reason = "cases outside the range come first")]
pub(super) fn to_integer(number: f64) -> i64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if (-HALF..HALF).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        let cases = [
            (0.0, "0"),
            (-5.0, "-5"),
            (4_503_599_627_370_495.0, "4503599627370495"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000001"),
            (1e-5, "1.0000000000000001e-05"),
            (1e300, "1.0000000000000001e+300"),
            (f64::INFINITY, "inf"),
        ];
        for (number, text) in cases {
            assert_eq!(print(number), text);
        }
    }

    #[test]
    fn numbers_beyond_the_range_become_what_processors_make_of_them() {
        assert_eq!(to_unsigned(-1.0), u64::MAX);
        assert_eq!(to_unsigned(2f64.powi(63)), 1 << 63);
        assert_eq!(to_unsigned(2f64.powi(64)), 0);
        assert_eq!(to_integer(2f64.powi(63)), i64::MIN);
        assert_eq!(to_integer(-1.9), -1);
    }
}
