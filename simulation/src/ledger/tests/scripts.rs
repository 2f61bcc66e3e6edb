//! The scripts that are, and scripts that are broken.

use super::history::History;
use super::lua::{SOURCE, Server};

/// How many histories there are: `LEDGER_SEEDS` says so, else 400.
fn seeds() -> u64 {
    std::env::var("LEDGER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

/// The first seed of so many whose history is found wrong, and why.
fn first_wrong(source: &str, seeds: u64, faults: bool) -> Option<(u64, String)> {
    let server = Server::new(source);
    (0..seeds).find_map(|seed| History::new(&server, seed).run(60, faults).err().map(|error| (seed, error)))
}

#[test]
fn the_scripts_do_what_the_models_say() {
    assert_eq!(first_wrong(SOURCE, seeds(), false), None);
}

#[test]
fn the_scripts_do_what_the_models_say_whatever_clocks_and_servers_do() {
    assert_eq!(first_wrong(SOURCE, seeds(), true), None);
}

/// Scripts with one thing changed, and what is wrong with them then.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "slots let one more in",
        "held + cost + floor <= limit\n  if not fits or cost == 0 then\n    return fits, found, nil, nil, nil, digest",
        "held + cost + floor <= limit + 1\n  if not fits or cost == 0 then\n    return fits, found, nil, nil, nil, digest",
    ),
    ("slots are let go a tick too soon", "times[from] + life <= time)", "times[from] + life <= time + 1)"),
    (
        "slots of another time are released",
        "stamp == NEVER or stamp == times[i] then\n        local back",
        "true then\n        local back",
    ),
    ("slots are released twice", "min(refund - refunded, counts[i])", "min(refund, counts[i])"),
    (
        "what was lost is not renewed",
        "min(charge, max(0, most - held))\n  local units = charge > 0 and",
        "min(charge, max(0, most - held), refunded)\n  local units = charge > 0 and",
    ),
    (
        "slots that are renewed stay where they were",
        "local back = min(refund - refunded, counts[i])",
        "local back = charge > 0 and 0 or min(refund - refunded, counts[i])",
    ),
    ("slots join those of long ago", "from <= size and time < times[size] + part then", "from <= size then"),
    (
        "a fixed window lets one more in",
        "or count + cost + floor <= limit\n  if",
        "or count + cost + floor <= limit + 1\n  if",
    ),
    (
        "a fixed window lets one less in",
        "or count + cost + floor <= limit\n  if",
        "or count + cost + floor < limit\n  if",
    ),
    ("a fixed window never ends", "  if current > start then\n    return current, 0, KEPT\n  end\n", ""),
    ("a fixed window has no floor", "or count + cost + floor <= limit\n  if", "or count + cost <= limit\n  if"),
    ("a fixed window gives back what another took", "stamp ~= NEVER and stamp ~= start then", "false then"),
    ("a fixed window gives back more than was taken", "max(0, count - refund)", "count - refund"),
    (
        "a fixed window keeps an expiry that is over",
        "local stands = count > 0\n  count = count + cost\n  return true, found, fixed",
        "local stands = found == KEPT\n  count = count + cost\n  return true, found, fixed",
    ),
    ("a fixed window is charged without bound", "min(kept + charge, max(kept, 2 * limit))", "kept + charge"),
    ("a log lets one more in", "live + cost + floor <= limit", "live + cost + floor <= limit + 1"),
    ("a log keeps a unit a tick too long", "+ age <= time then", "+ age < time then"),
    ("a log forgets a unit a tick too soon", "+ age <= time then", "+ age <= time + 1 then"),
    (
        "a log goes back in time",
        "local time = max(last, now)\n  local expired = log_aged(value, last, size, time, window)\n  local live",
        "local time = now\n  local expired = log_aged(value, last, size, time, window)\n  local live",
    ),
    ("a log gives back what was taken later", "to = max(expired, log_aged(value, last, size, stamp, 0))", "to = size"),
    ("a log is charged without bound", "min(charge, max(0, 2 * limit - kept))", "charge"),
    (
        "a sliding window forgets the window before",
        "weight + count + cost + floor <= limit",
        "count + cost + floor <= limit",
    ),
    (
        "a sliding window rounds up",
        "(weighed - weighed % window) / window\n    or mul_div(window - elapsed, previous, window)\n  local fits",
        "div_ceil(weighed, window)\n    or mul_div(window - elapsed, previous, window)\n  local fits",
    ),
    ("a sliding window keeps the window before last", "return time, 0, 0, KEPT", "return time, 0, count, KEPT"),
    ("a sliding window gives back what another took", "stamp == NEVER or stamp == start then", "true then"),
    ("a sliding window gives back twice", "min(refund - refunded, previous)", "min(refund, previous)"),
    ("a sliding window is charged without bound", "min(charge, max(0, 2 * limit - weight - kept))", "charge"),
    (
        "a token bucket goes below 0",
        "deficit <= (capacity - cost - floor) * window",
        "deficit <= (capacity - floor) * window",
    ),
    (
        "a token bucket in one step has one more",
        "return (capacity - floor) * window",
        "return (capacity + 1 - floor) * window",
    ),
    ("a token bucket gives back what was refilled", "max(0, time - stamp) * limit", "0"),
    (
        "a token bucket fills over its rim",
        "max(0, deficit - max(0, refund * window - refilled))",
        "deficit - max(0, refund * window - refilled)",
    ),
    (
        "a bucket refills by a clock that steps back",
        "    return time, level, KEPT, expiry\n  end\n  -- Where",
        "    return now, max(0, level - (time - now) * limit), KEPT, expiry\n  end\n  -- Where",
    ),
    (
        "a bucket rewinds with its clock",
        "    return time, level, KEPT, expiry\n  end\n  -- Where",
        "    return now, level, KEPT, expiry\n  end\n  -- Where",
    ),
    (
        "a bucket returns units that were never taken",
        "max(0, level - (now - time) * limit)",
        "level - (now - time) * limit",
    ),
    ("a bucket believes a time far ahead", "  if time > now + window then\n    return now, 0, AHEAD, 0\n  end\n", ""),
    (
        "a bucket is gone too soon",
        "need <= expiry and expiry <= need + window",
        "expiry > 0 and expiry <= need + window",
    ),
    ("a bucket in one step is gone too soon", "reset <= lasts and lasts <= reset + window", "lasts <= reset + window"),
    (
        "a leaky bucket has a place more",
        "backlog <= (capacity - 1 - floor) * window",
        "backlog <= (capacity - floor) * window",
    ),
    ("a leaky bucket gives back any slot", "stamp ~= min(NEVER - 1, time + div_ceil(backlog, limit))", "false"),
    (
        "a leaky bucket says it gave back more than was taken",
        "charged or min(refund, div_ceil(backlog, window))",
        "charged or refund",
    ),
    (
        "a leaky bucket is charged without bound",
        "2 * capacity * window - kept)\n  local charged = min(charge, (room - room % window) / window)\n  local changed = kept + charged * window\n  local units = charge > 0 and charged or min",
        "3 * capacity * window - kept)\n  local charged = min(charge, (room - room % window) / window)\n  local changed = kept + charged * window\n  local units = charge > 0 and charged or min",
    ),
    ("a refused request takes what fits", "    if refused then\n      take_back", "    if false then\n      take_back"),
    ("a refused request takes what else fits", "    elseif others then", "    end\n    if others then"),
    (
        "a usual check has one more",
        "if level <= room and time <= now",
        "if level <= room + rule.window and time <= now",
    ),
    ("a usual check rewinds with its clock", "if level <= room and time <= now and", "if level <= room and"),
    (
        "a usual check forgets what the requests before it took",
        "now, known, pack(FALLING, now, known, expiry), known",
        "time, found, value, known",
    ),
    (
        "a refused request gives back what others took",
        "batch.levels[batch.checks[i]] = batch.before[i]",
        "batch.levels[batch.checks[i]] = nil",
    ),
    (
        "what usual checks took is lost with another",
        "nil, batch.expiries[key] or false\n  end",
        "nil, batch.expiries[key]\n  end",
    ),
    ("a shadow check refuses", "not fits and (rule.enforced or found == OUTSIDE)", "not fits"),
    ("no check refuses", "return not fits and (rule.enforced or found == OUTSIDE)", "return false"),
    ("checks of one counter do not add up", "rule.repeats and decide_repeat or decide_check", "decide_check"),
    ("keys expire at once", "(life - life % 1000) / 1000 + 2", "1"),
    ("a reset resets nothing", "batch.values[key], batch.expiries[key] = false, false", ""),
    (
        "a later request does not see the earlier",
        "values[key], expiries[key] = state, ends[i] or expiries[key] or false",
        "expiries[key] = ends[i] or false",
    ),
    (
        "a calendar lets one more in",
        "or count + cost + floor <= limit\n  if not fits or cost == 0 then\n    return fits, found\n  end\n  -- What",
        "or count + cost + floor <= limit + 1\n  if not fits or cost == 0 then\n    return fits, found\n  end\n  -- What",
    ),
    ("a calendar knows all times", "if now >= ends or now < ends - length then", "if false then"),
    (
        "a calendar knows no window but one",
        "  if now >= ends then\n    length = third",
        "  if false then\n    length = third",
    ),
    (
        "a calendar's window never ends",
        "  if kept > now then\n    return kept, count_high",
        "  if true then\n    return kept, count_high",
    ),
    ("a calendar believes a window far ahead", "if kept > ends + 2 * length then", "if false then"),
    ("a calendar gives back what another window took", "if stamp ~= NEVER and stamp ~= ends then", "if false then"),
    (
        "a calendar is charged without bound",
        "local changed = min(kept + charge, max(kept, 2 * limit))\n  local units = max(count - kept, changed - kept)\n  if changed ~= count then\n    return units, fixed_window_state(ends, changed), ends - now",
        "local changed = kept + charge\n  local units = max(count - kept, changed - kept)\n  if changed ~= count then\n    return units, fixed_window_state(ends, changed), ends - now",
    ),
    (
        "a time in no window refuses only if enforced",
        "not fits and (rule.enforced or found == OUTSIDE)",
        "not fits and rule.enforced",
    ),
    ("a time in no window is a strike", ">= 2 * OUTSIDE then\n      return last + 2", ">= 2 * OUTSIDE then"),
    ("a ban lets everybody in", "return now >= ends, found\nend", "return true, found\nend"),
    ("a ban ends a tick late", "return now >= ends, found\nend", "return now > ends, found\nend"),
    ("a ban begins one strike too soon", "if 2 * strikes >= code", "if 2 * strikes + 2 >= code"),
    ("a ban begins one strike too late", "if 2 * strikes >= code", "if 2 * strikes > code"),
    ("strikes count for ever", "if strikes == 0 or now >= start + window then", "if strikes == 0 then"),
    ("strikes stay after a ban", "ends, start, strikes = now + length, 0, 0", "ends = now + length"),
    ("a ban does not grow", "div_ceil(length * growth, 1000)", "length"),
    ("a ban grows for ever", "length = min(most, max(time,", "length = (max(time,"),
    ("a ban grows though it is long ago", "if length == 0 or now >= ends + most then", "if length == 0 then"),
    ("each ban is extended", "if code % 2 == 0 then\n      return 0\n    end", ""),
    ("no ban is extended", "if code % 2 == 0 then\n      return 0", "if true then\n      return 0"),
    (
        "a ban is extended to before its end",
        "ends, units = max(ends, now + length), 0",
        "ends, units = now + length, 0",
    ),
    (
        "a refusal during a ban is a strike",
        "ends, units = max(ends, now + length), 0",
        "ends = max(ends, now + length)",
    ),
    ("a strike counts twice", "min(start, now), strikes + 1", "min(start, now), strikes + 2"),
    ("a ban believes a time far ahead", "if ends - length > now + most or start > now + within then", "if false then"),
    (
        "a ban that is shorter now stays as long",
        "return ends - length + most, most, start, strikes, KEPT",
        "return ends, length, start, strikes, KEPT",
    ),
    (
        "a ban is gone before it no longer matters",
        "local matters = growth > 1000 and length > 0 and ends + most or ends",
        "local matters = ends",
    ),
    (
        "strikes are gone too soon",
        "return units, pack(BAN, ends, length, start, strikes), max(matters, counts) - now",
        "return units, pack(BAN, ends, length, start, strikes), max(1, matters - now)",
    ),
    ("in shadow mode a banned key takes", "not rule.enforced and is_banned(", "false and is_banned("),
    ("each check is a strike", "(not fits_now(all, i + 2, flag) or is_banned(", "(true or is_banned("),
    ("no refusal is a strike", "(not fits_now(all, i + 2, flag) or is_banned(", "(is_banned("),
    (
        "the check of another ban is a strike",
        "flags[before + (i - first + 3) / 2]",
        "flags[before + (i - first + 7) / 2]",
    ),
    ("what only looks is a strike", "rule.cost > 0 and (", "("),
    ("a look that tests is none", "  if own.cost > 0 then\n", "  if true then\n"),
    ("a single check is not written", "call('SET', keys[1], state, 'PX', millis(expiry * tick))", ""),
];

#[test]
fn each_script_that_is_broken_is_found() {
    let found = |(what, right, broken): &(&'static str, &str, &str)| {
        assert!(SOURCE.contains(right), "{what}: there is no {right:?}");
        let wrong = first_wrong(&SOURCE.replace(right, broken), 2_000, true);
        eprintln!("{what}: {wrong:?}");
        wrong.is_none().then_some(*what)
    };
    let missed: Vec<_> = BROKEN.iter().filter_map(found).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
