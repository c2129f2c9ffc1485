//! The table of scenarios: which behaviour is shown for which kind, and why the others cannot show it.

use kube::api::PropagationPolicy::{Background, Foreground};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};

use crate::children::Child;
use crate::troubles;

/// Behaviour of every kind.
macro_rules! every_kind {
    ($kind:ty) => {
        scenarios! { $kind;
            life {
                a_new_resource_walks_pending_reconciled_rolling_ready,
                a_change_that_alters_no_child_still_moves_observed_generation,
            }
            rollouts {
                a_rolling_update_of_three_is_never_ready_in_between_and_stays_available,
                a_spec_changed_in_mid_rollout_ends_ready_at_the_last_generation,
                an_update_that_fails_keeps_what_serves_and_heals,
                foreign_labels_annotations_and_rollout_restart_survive,
                a_restart_of_the_only_instance_is_a_rolling_update,
                twenty_rollouts_never_claim_ready_too_early,
            }
            troubles {
                an_image_that_cannot_be_pulled_is_degraded_and_heals => degraded_and_heals(&troubles::IMAGE_PULL),
                a_crash_loop_is_degraded_and_heals => degraded_and_heals(&troubles::CRASH_LOOP),
                a_container_out_of_memory_is_degraded_and_heals => degraded_and_heals(&troubles::OUT_OF_MEMORY),
                a_missing_secret_key_is_degraded_and_heals => degraded_and_heals(&troubles::MISSING_KEY),
                an_unschedulable_pod_is_degraded_and_heals => degraded_and_heals(&troubles::UNSCHEDULABLE),
                a_startup_probe_that_gives_up_is_degraded_and_heals => degraded_and_heals(&troubles::STARTUP_PROBE),
                a_node_that_does_not_report_is_degraded_and_heals => degraded_and_heals(&troubles::NODE_LOST),
                a_rollout_past_its_deadline_is_degraded_and_heals => degraded_and_heals(&troubles::IMPATIENT),
            }
            instances {
                an_instance_that_is_no_longer_ready_is_degraded_and_named_and_heals,
                a_deleted_pod_is_a_lost_instance_until_its_successor_serves,
            }
            specs {
                an_invalid_first_spec_is_pending_without_children_and_lists_all_errors,
                an_invalid_new_spec_leaves_children_untouched_is_degraded_and_heals,
            }
            ownership {
                a_foreign_workload_of_our_name_is_never_touched => never_touched(<$kind as crate::kind::Kind>::WORKLOAD),
                a_foreign_service_of_our_name_is_never_touched => never_touched(Child::Service),
                a_foreign_metrics_service_of_our_name_is_never_touched => never_touched(Child::MetricsService),
                a_foreign_service_monitor_of_our_name_is_never_touched => never_touched(Child::ServiceMonitor),
                an_unowned_object_with_our_selector_labels_is_adopted,
                an_object_that_somebody_else_controls_is_not_taken_even_if_handed_over,
            }
            drift {
                drift_in_a_rendered_field_is_repaired,
                a_deleted_child_is_made_again,
            }
            deletion {
                deletion_in_the_background_collects_everything_and_recreates_nothing =>
                    collects_everything_and_recreates_nothing(Background),
                deletion_in_the_foreground_collects_everything_and_recreates_nothing =>
                    collects_everything_and_recreates_nothing(Foreground),
                a_resource_deleted_and_created_again_at_once_ends_ready,
            }
            quiet {
                a_settled_resource_causes_no_request,
            }
        }
    };
}

/// Behaviour of engines, and why a coordinator cannot show it.
macro_rules! engines_only {
    ($kind:ty) => {
        scenarios! { $kind;
            life because "a coordinator has as many replicas as its spec says, and needs no node of its own for each" {
                waits_reconciled_while_no_node_matches_and_gets_ready_when_one_joins,
            }
            instances because "a coordinator has as many replicas as its spec says: no node brings one or takes one away" {
                a_joining_node_is_rolling_and_not_degraded,
                a_node_that_leaves_is_no_loss,
                one_node_of_two_that_does_not_report_is_named_while_the_other_serves,
            }
            troubles because "a coordinator has no runtimeClassName; a quota refuses its pods instead" {
                a_missing_runtime_class_is_degraded_and_heals => degraded_and_heals(&troubles::RUNTIME_CLASS),
            }
            ownership because "a coordinator has neither a ConfigMap nor a Secret nor a NetworkPolicy" {
                a_foreign_config_map_of_our_name_is_never_touched => never_touched(Child::Connection),
                a_foreign_secret_of_our_name_is_never_touched => never_touched(Child::Credentials),
                a_foreign_network_policy_of_our_name_is_never_touched => never_touched(Child::NetworkPolicy),
            }
            dependencies because "a coordinator refers to nothing" {
                waits_for_a_missing_credentials_secret_names_it_and_goes_on_within_a_second,
                waits_for_a_missing_password_and_goes_on_when_it_is_there,
                keeps_serving_when_the_credentials_secret_is_deleted,
                a_rotation_of_the_credentials_rolls_the_engine,
                a_secret_of_another_namespace_needs_consent,
            }
            quiet because "a coordinator has no credentials" {
                no_secret_value_is_in_log_status_or_events,
            }
        }
    };
}

/// Behaviour of coordinators, and why an engine cannot show it.
macro_rules! coordinators_only {
    ($kind:ty) => {
        scenarios! { $kind;
            troubles because "a missing RuntimeClass shows it for engines" {
                a_quota_that_leaves_no_room_is_degraded_and_heals => degraded_and_heals(&troubles::QUOTA),
            }
        }
        // No engine has a number of replicas in its spec.
        plain! {
            coordinators {
                zero_replicas_rest_in_reconciled_and_come_back,
                scaling_up_is_rolling_and_says_so_and_scaling_down_is_no_loss,
                with_two_replicas_the_registry_is_not_consistent_and_with_one_it_is,
                a_rollout_of_the_only_replica_ends_the_old_one_first_and_is_no_loss,
            }
        }
    };
}

macro_rules! scenarios {
    ($kind:ty; $($module:ident $(because $reason:literal)? {
        $($test:ident $(=> $scenario:ident($($argument:expr),*))?),+ $(,)?
    })+) => {
        $($(
            scenario! { $kind; $module; $test $(=> $scenario($($argument),*))? }
        )+)+
    };
}

macro_rules! scenario {
    ($kind:ty; $module:ident; $test:ident) => {
        scenario! { $kind; $module; $test => $test() }
    };
    ($kind:ty; $module:ident; $test:ident => $scenario:ident($($argument:expr),*)) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() -> anyhow::Result<()> {
            crate::$module::$scenario::<$kind>($($argument),*).await
        }
    };
}

macro_rules! plain {
    ($($module:ident { $($test:ident),+ $(,)? })+) => {
        $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> anyhow::Result<()> {
                crate::$module::$test().await
            }
        )+)+
    };
}

mod lmcache_engine {
    use super::*;
    every_kind!(LMCacheEngine);
    engines_only!(LMCacheEngine);
}

mod cache_blend_engine {
    use super::*;
    every_kind!(CacheBlendEngine);
    engines_only!(CacheBlendEngine);
}

mod lmcache_coordinator {
    use super::*;
    every_kind!(LMCacheCoordinator);
    coordinators_only!(LMCacheCoordinator);
}
