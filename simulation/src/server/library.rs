//! Libraries of functions.

use mlua::{Function, Value};

use super::lua::{Raised, Running};

/// A library that was read.
#[derive(Clone, Debug)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) functions: Vec<(String, Function)>,
}

/// The name of a library and where its code begins, which the first line says.
pub(super) fn read_name(source: &[u8]) -> Result<(String, usize), String> {
    if !source.starts_with(b"#!") {
        return Err("ERR Missing library metadata".to_owned());
    }
    let end = source.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid library metadata")?;
    let mut words = source[2..end].split(|byte| *byte == b' ');
    let engine = words.next().unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("ERR Engine '{}' not found", String::from_utf8_lossy(engine)));
    }
    let name = words.find_map(|word| word.strip_prefix(b"name=")).ok_or("ERR Library name was not given")?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| INVALID_NAME)?;
    if name.is_empty() || !is_name(&name) {
        return Err(INVALID_NAME.to_owned());
    }
    Ok((name, end))
}

const INVALID_NAME: &str =
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `redis.register_function(name, function)`.
pub(super) fn register(running: &mut Running, args: &[Value]) -> mlua::Result<()> {
    let Some(registered) = &mut running.registered else {
        let text = "redis.register_function can only be called on FUNCTION LOAD command";
        return Err(Raised::Error(text.to_owned()).into());
    };
    match args {
        [Value::String(name), Value::Function(function)] => {
            registered.push((name.to_string_lossy(), function.clone()));
            Ok(())
        }
        _ => Err(Raised::Error("wrong number of arguments to redis.register_function".to_owned()).into()),
    }
}
