//! Attacks by tenants: users of a namespace, Pods without rights, approvers of
//! another namespace. Each test is named after its attack (docs/THREATS.md) and
//! tries it on a real API server.

mod approving;
mod authority;
mod callers;
mod chains;
mod controllers;
mod deep;
mod elsewhere;
mod foreground;
mod hold_age;
mod load;
mod naming;
mod owners;
mod reader;
mod rules;
mod times;
