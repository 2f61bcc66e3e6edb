//! The same client, route or path, written in another way: it is still the same one, or it is refused.

mod addresses;
mod hosts;
mod lists;
mod methods;
mod options;
mod params;
mod paths;
mod preflights;
mod rig;
mod routes;
