//! Requests of which nobody can tell for certain whom to count.

use std::convert::Infallible;
use std::future::ready;

use http::HeaderName;
use http::request::Parts;
use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor, ListEntry};
use tollgate::store::Answer;
use tollgate::{AccessList, Error, Key, Lookup, MissingKey, Policy, Quota, RawValues, Tier, key::Secret};

use crate::rig::{Rig, Service, Text, and, body, expect, get, line, now, with};
