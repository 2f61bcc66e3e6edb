//! Lua's `struct` library, as Redis has it: numbers in bytes.

use mlua::{Lua, MultiValue, Table, Value, Variadic};

use super::lua::Raised;
use super::number::{to_integer, to_unsigned};
use super::structs_format::Format;

/// The table of the library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let packs = |lua: &Lua, mut args: Variadic<Value>| {
        // The library has a mark behind them.
        if !args.is_empty() {
            args.push(Value::Nil);
        }
        Ok(pack(lua, &args)?)
    };
    library.raw_set("pack", lua.create_function(packs)?)?;
    library.raw_set("unpack", lua.create_function(|lua, args| Ok(unpack(lua, &args)?))?)?;
    Ok(library)
}

fn pack(lua: &Lua, args: &Variadic<Value>) -> Result<mlua::String, Raised> {
    let text = string(lua, args, 1)?;
    let text = text.as_bytes();
    let (mut format, mut out, mut arg) = (Format::new(&text), Vec::with_capacity(32), 1);
    while let Some(item) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), item), 0);
        let (option, size) = item;
        if option == b'x' {
            out.push(0);
            continue;
        }
        arg += 1;
        match option {
            b's' | b'c' => put_string(&mut out, item, &string(lua, args, arg)?.as_bytes(), arg)?,
            b'f' => put(&mut out, format.big, &narrow(number(lua, args, arg)?).to_le_bytes()),
            b'd' => put(&mut out, format.big, &number(lua, args, arg)?.to_le_bytes()),
            _ => {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&to_unsigned(number(lua, args, arg)?).to_le_bytes());
                put(&mut out, format.big, &bytes[..size]);
            }
        }
    }
    lua.create_string(&out).map_err(|error| Raised::Error(error.to_string()))
}

fn put_string(out: &mut Vec<u8>, (option, size): (u8, usize), bytes: &[u8], arg: usize) -> Result<(), Raised> {
    let size = if size == 0 { bytes.len() } else { size };
    // The library has counted this argument by then.
    let part = bytes.get(..size).ok_or_else(|| Raised::Argument(arg + 1, "string too short".to_owned()))?;
    out.extend_from_slice(part);
    if option == b's' {
        out.push(0);
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, big: bool, bytes: &[u8]) {
    let start = out.len();
    out.extend_from_slice(bytes);
    if big {
        out[start..].reverse();
    }
}

#[allow(clippy::cast_possible_truncation, reason = "as the library does")]
fn narrow(number: f64) -> f32 {
    number as f32
}

fn unpack(lua: &Lua, args: &Variadic<Value>) -> Result<MultiValue, Raised> {
    let (text, data) = (string(lua, args, 1)?, string(lua, args, 2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let mut place = first(lua, args)?;
    let (mut format, mut values) = (Format::new(&text), Vec::with_capacity(9));
    while let Some(item) = format.next()? {
        place = place.wrapping_add(format.padding(place, item));
        let (option, mut size) = item;
        let mut bytes = part(&data, place, size)?;
        match option {
            b'x' => {}
            b'c' => {
                if size == 0 {
                    size = previous_size(lua, &mut values)?;
                    bytes = part(&data, place, size)?;
                }
                values.push(made(lua, bytes)?);
            }
            b's' => {
                let rest = &data[place..];
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| Raised::Error("unfinished string in data".to_owned()))?;
                size = end + 1;
                values.push(made(lua, &rest[..end])?);
            }
            _ => values.push(Value::Number(read(bytes, format.big, option))),
        }
        place += size;
    }
    values.push(Value::Number(from_size(place + 1)));
    Ok(MultiValue::from_vec(values))
}

/// Where `unpack` begins, from 0.
fn first(lua: &Lua, args: &Variadic<Value>) -> Result<usize, Raised> {
    let place = match args.get(2) {
        None | Some(Value::Nil) => 1,
        Some(_) => to_integer(number(lua, args, 3)?).cast_unsigned(),
    };
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    place.checked_sub(1).ok_or_else(|| Raised::Argument(3, "offset must be 1 or greater".to_owned()))
}

fn part(data: &[u8], place: usize, size: usize) -> Result<&[u8], Raised> {
    let part = place.checked_add(size).and_then(|end| data.get(place..end));
    part.ok_or_else(|| Raised::Argument(2, "data string too short".to_owned()))
}

/// A size that was unpacked just before, and is no value then.
fn previous_size(lua: &Lua, values: &mut Vec<Value>) -> Result<usize, Raised> {
    let size = values.pop().and_then(|value| lua.coerce_number(value).ok().flatten());
    let size = size.ok_or_else(|| Raised::Error("format 'c0' needs a previous size".to_owned()))?;
    Ok(usize::try_from(to_unsigned(size)).unwrap_or(usize::MAX))
}

fn made(lua: &Lua, bytes: &[u8]) -> Result<Value, Raised> {
    lua.create_string(bytes).map(Value::String).map_err(|error| Raised::Error(error.to_string()))
}

#[allow(clippy::cast_precision_loss, reason = "as the library does: to the nearest")]
fn read(bytes: &[u8], big: bool, option: u8) -> f64 {
    let shift = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    let number = if big { bytes.iter().fold(0, shift) } else { bytes.iter().rev().fold(0, shift) };
    match option {
        b'd' => f64::from_bits(number),
        b'f' => f32::from_bits(u32::try_from(number).unwrap_or_default()).into(),
        unsigned if unsigned.is_ascii_uppercase() => number as f64,
        _ => {
            let bits = u32::try_from(bytes.len() * 8).unwrap_or_default();
            let mask = u64::MAX.wrapping_shl(bits.wrapping_sub(1));
            let number = if number & mask == 0 { number } else { number | mask };
            number.cast_signed() as f64
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "no string is that long")]
fn from_size(size: usize) -> f64 {
    size as f64
}

fn string(lua: &Lua, args: &Variadic<Value>, arg: usize) -> Result<mlua::String, Raised> {
    let found = args.get(arg - 1).cloned();
    let made = found.clone().and_then(|value| lua.coerce_string(value).ok().flatten());
    made.ok_or_else(|| expected("string", arg, found.as_ref()))
}

fn number(lua: &Lua, args: &Variadic<Value>, arg: usize) -> Result<f64, Raised> {
    #[allow(clippy::cast_precision_loss, reason = "it came from a double")]
    match args.get(arg - 1) {
        Some(Value::Number(number)) => Ok(*number),
        Some(Value::Integer(number)) => Ok(*number as f64),
        found => {
            let made = found.cloned().and_then(|value| lua.coerce_number(value).ok().flatten());
            made.ok_or_else(|| expected("number", arg, found))
        }
    }
}

fn expected(what: &str, arg: usize, found: Option<&Value>) -> Raised {
    Raised::Argument(arg, format!("{what} expected, got {}", found.map_or("no value", Value::type_name)))
}
