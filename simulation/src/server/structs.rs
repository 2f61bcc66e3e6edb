//! As much of Lua's `struct` library as the scripts use: unsigned numbers of some bytes, the highest first.

use mlua::{Lua, MultiValue, Table, Value, Variadic};

use super::lua::Raised;

/// The table of the library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(|lua, args| Ok(pack(lua, &args)?))?)?;
    library.raw_set("unpack", lua.create_function(|lua, args| Ok(unpack(lua, &args)?))?)?;
    Ok(library)
}

/// The sizes of the numbers of a format such as `>BI7`.
fn sizes(format: &[u8]) -> Result<Vec<usize>, Raised> {
    let odd = || Raised::Error(format!("no format of these scripts: {}", format.escape_ascii()));
    let mut rest = format.strip_prefix(b">").ok_or_else(odd)?.iter().peekable();
    let mut sizes = Vec::with_capacity(8);
    while let Some(option) = rest.next() {
        sizes.push(match option {
            b'B' => 1,
            b'I' => rest
                .next()
                .filter(|digit| (b'1'..=b'8').contains(digit))
                .map(|digit| usize::from(digit - b'0'))
                .ok_or_else(odd)?,
            _ => return Err(odd()),
        });
    }
    Ok(sizes)
}

fn pack(lua: &Lua, args: &Variadic<Value>) -> Result<mlua::String, Raised> {
    let mut out = Vec::with_capacity(32);
    for (place, size) in sizes(&string(lua, args, 1)?.as_bytes())?.into_iter().enumerate() {
        out.extend_from_slice(&to_unsigned(number(lua, args, place + 2)?).to_be_bytes()[8 - size..]);
    }
    lua.create_string(&out).map_err(|error| Raised::Error(error.to_string()))
}

#[allow(clippy::cast_precision_loss, reason = "as the library does: to the nearest")]
fn unpack(lua: &Lua, args: &Variadic<Value>) -> Result<MultiValue, Raised> {
    let (format, data) = (string(lua, args, 1)?, string(lua, args, 2)?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let first = if args.len() > 2 { to_unsigned(number(lua, args, 3)?) } else { 1 };
    let mut place = usize::try_from(first).unwrap_or(usize::MAX).saturating_sub(1);
    let mut values = Vec::with_capacity(9);
    for size in sizes(&format)? {
        let bytes = place.checked_add(size).and_then(|end| data.get(place..end));
        let bytes =
            bytes.ok_or_else(|| Raised::Error("bad argument #2 to 'unpack' (data string too short)".to_owned()))?;
        values.push(Value::Number(bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)) as f64));
        place += size;
    }
    values.push(Value::Number((place + 1) as f64));
    Ok(MultiValue::from_vec(values))
}

/// A number as an unsigned one of 64 bits, as C compilers convert one on x86-64.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as C does")]
fn to_unsigned(number: f64) -> u64 {
    if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 }
}

fn string(lua: &Lua, args: &Variadic<Value>, arg: usize) -> Result<mlua::String, Raised> {
    let made = args.get(arg - 1).cloned().and_then(|value| lua.coerce_string(value).ok().flatten());
    made.ok_or_else(|| Raised::Error(format!("bad argument #{arg} (string expected)")))
}

fn number(lua: &Lua, args: &Variadic<Value>, arg: usize) -> Result<f64, Raised> {
    #[allow(clippy::cast_precision_loss, reason = "it came from a double")]
    match args.get(arg - 1) {
        Some(Value::Number(number)) => Ok(*number),
        Some(Value::Integer(number)) => Ok(*number as f64),
        found => {
            let made = found.cloned().and_then(|value| lua.coerce_number(value).ok().flatten());
            made.ok_or_else(|| Raised::Error(format!("bad argument #{arg} (number expected)")))
        }
    }
}
