//! Servers that speak as Redis does, and count otherwise.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use tollgate::deadpool_redis::redis::{Parser, from_redis_value};
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::{Error, RedisStore};

use super::stores::{PATIENCE, settings, take};
use super::support::server::RedisServer;

/// The commands that a server was sent.
type Asked = Arc<Mutex<Vec<String>>>;

/// The reply to a command.
type Answer = fn(&[Vec<u8>]) -> Vec<u8>;

fn serve(answer: Answer) -> (String, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let (address, asked) = (listener.local_addr().expect("a listener has an address"), Asked::default());
    let heard = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = Arc::clone(&heard);
            thread::spawn(move || answer_all(stream, &heard, answer));
        }
    });
    (format!("redis://{address}"), asked)
}

fn answer_all(mut stream: TcpStream, asked: &Asked, answer: Answer) {
    let mut parser = Parser::new();
    while let Ok(command) = parser.parse_value(&mut stream) {
        let words: Vec<Vec<u8>> = from_redis_value(command).expect("a command is words");
        asked.lock().expect("nobody panics here").push(String::from_utf8_lossy(&words[0]).into_owned());
        if stream.write_all(&answer(&words)).is_err() {
            return;
        }
    }
}

/// A server like Microsoft Garnet: it takes scripts and functions, and packs seven bytes into four.
fn foreign() -> (String, Asked) {
    serve(|words| {
        let is_script = words[0].starts_with(b"EVAL") || words[0] == b"FCALL";
        if is_script { b"$6\r\n\x03\xff\0\0\0\x01\r\n".into() } else { b"+OK\r\n".into() }
    })
}

/// A server like `ElastiCache` Serverless: a script without a key is an error. A real server runs the others.
fn keyed(words: &[Vec<u8>]) -> Vec<u8> {
    match words {
        [eval, _, keys, ..] if eval == b"EVAL" && keys == b"0" => {
            b"-ERR Lua scripts without any input keys are not supported.\r\n".into()
        }
        [eval, ..] if eval == b"EVAL" => {
            let server = RedisServer::start();
            let _: () = server.ask(&["ACL", "SETUSER", "default", "resetkeys", "~shop:*"]);
            let words: Vec<&str> = words.iter().map(|word| str::from_utf8(word).expect("it is text")).collect();
            let result: Vec<u8> = server.ask(&words);
            [format!("${}\r\n", result.len()).as_bytes(), &result, b"\r\n"].concat()
        }
        _ => b"+OK\r\n".into(),
    }
}

/// Checks that an error says what the server is, and that nothing was asked of it but that.
#[track_caller]
fn assert_refused(error: &Error, asked: &Asked) {
    assert!(format!("{error:#}").contains("this server is no Redis"), "{error:?}");
    let asked = asked.lock().expect("nobody panics here");
    let calls = asked.iter().filter(|command| ["EVAL", "EVALSHA", "FCALL"].contains(&command.as_str())).count();
    assert_eq!(calls, 1, "{asked:?}");
}

#[tokio::test]
async fn a_server_whose_lua_packs_numbers_otherwise_is_refused_and_a_pool_that_leads_to_it_decides_nothing() {
    for settings in [RedisStore::builder, || RedisStore::builder().functions()] {
        let (url, asked) = foreign();
        let error = settings().connect(&url).await.expect_err("it is no Redis");
        assert!(error.is_connection(), "{error:?}");
        assert_refused(&error, &asked);
        let (url, asked) = foreign();
        let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
        let store = settings().timeout(PATIENCE).from_pool(pool).expect("the settings are valid");
        let error = take(&store, "ada", 1).await.expect_err("it is no Redis");
        assert!(error.is_store(), "{error:?}");
        assert_refused(&error, &asked);
    }
}

#[tokio::test]
async fn a_server_that_runs_no_script_without_a_key_is_checked_with_one_of_the_prefix() {
    let (url, asked) = serve(keyed);
    settings().connect_timeout(PATIENCE).prefix("shop").connect(&url).await.expect("its Lua is that of Redis");
    let asked = asked.lock().expect("nobody panics here");
    assert_eq!(asked.iter().filter(|command| *command == "EVAL").count(), 2, "{asked:?}");
}

#[tokio::test]
async fn a_server_whose_reply_to_a_login_does_not_end_is_given_up_before_it_fills_memory() {
    let (url, _) = serve(|_| [&b"*9\r\n$9000000\r\n"[..], &vec![0; 2_000_000]].concat());
    let started = Instant::now();
    let error = settings().connect_timeout(6 * PATIENCE).connect(&url).await.expect_err("it is no reply");
    assert!(error.is_connection() && started.elapsed() < 3 * PATIENCE, "{error:?}");
}
