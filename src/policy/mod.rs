//! Policies: what people write, and what verdicts read.
//!
//! [`api`] has the objects as they stand in the cluster. Everything else is
//! what is made of them: a [`PolicySet`] that finds the policies of an object
//! by its kind, and [`Approvals`] by the identity of what they name.

pub mod api;
mod approvals;
mod compiled;
mod facts;
mod people;
mod relation;
mod rules;
mod selectors;
mod set;
mod stripping;

#[cfg(test)]
mod tests;

pub use approvals::{Approval, Approvals, Discount, Identity, Pause, format_seconds};
pub use compiled::{
    BACKFILL, BINDS_SOME, Exists, InUse, Modes, NotEmpty, Policy, Source, Terms, mode_names,
};
pub use facts::{Facts, Pairs, Places};
pub use people::{Identities, Person, account as service_account, unasked_namespaces};
pub use relation::compile as compile_relation;
pub use rules::Rules;
pub use selectors::{Labels, Matched, Matcher, Users};
pub use set::{Applied, PolicySet};
pub use stripping::Stripping;
