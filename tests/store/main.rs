//! The store over SQLite: the contract that every store keeps, a restored backup, and databases of
//! older layouts.

mod backup;
mod contract;
mod damage;
mod github;
mod migration;
#[path = "../common/store_deliveries_suite.rs"]
mod store_deliveries_suite;
#[path = "../common/store_instructions_suite.rs"]
mod store_instructions_suite;
#[path = "../common/store_issues.rs"]
mod store_issues;
#[path = "../common/store_lists_suite.rs"]
mod store_lists_suite;
#[path = "../common/store_outbox_suite.rs"]
mod store_outbox_suite;
#[path = "../common/store_scope_suite.rs"]
mod store_scope_suite;
#[path = "../common/store_suite.rs"]
mod store_suite;
#[path = "../common/store_templates.rs"]
mod store_templates;
mod syncs;
mod usage;
