"""`make protections`: takes out one protection at a time and looks which test fails.

make protections ARGS="--only P6"

A promise is only as good as the test that would notice its end. Each entry of the table names a
protection by the text of the code that is it, the text without it, and the tests that must then
fail. All happens in a copy of the project; the exit status is 1 when no test has noticed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import Queue

PROJECT = Path(__file__).resolve().parents[2]
#: Where code is imported from, in the copy.
SOURCES = ("shared", "worker", "api", "tests", "tests/kits")
#: What a copy has no use for.
LEFT_OUT = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist")
#: Seconds that all tests of the table may take together, and each of them.
LIMIT = 900.0
TEST_LIMIT = 60

LUA = "shared/boyd/store/lua"
RUNTIME = "shared/boyd/runtime"
PHASES = "shared/boyd/phases"
API = "api/boyd_api"
WORKER = "worker/boyd_worker"


@dataclass(frozen=True)
class Protection:
    """One protection.

    Attributes:
        promise: what it keeps, as in docs/reliability.md.
        what: what holds with it.
        file: where it is.
        old: the text that is it; there exactly once.
        new: the text without it.
        suite: the file of the tests that must fail without it, below `tests`.
        tests: their names.
        scenario: of `make simulate` in which it is missed, if interleavings or crashes need it.
        backed_by: another one that does the same in most cases; nobody misses only one of the two.
    """

    promise: str
    what: str
    file: str
    old: str
    new: str
    suite: str
    tests: tuple[str, ...]
    scenario: str = ""
    backed_by: str = ""

    @property
    def nodes(self) -> list[str]:
        """The tests, as pytest names them."""
        return [f"tests/{self.suite}::{test}" for test in self.tests]

    def count_in(self, root: Path) -> int:
        """Count its text in its file below *root*."""
        path = root / self.file
        return path.read_text().count(self.old) if path.is_file() else 0


PROTECTIONS = (
    # P1: at most once for each decision.
    Protection(
        "P1",
        "only the worker that holds its act phase may claim",
        f"{LUA}/claim_execution.lua",
        "owns_phase(origin, options.n, options.epoch, 'act', options.entered, ",
        "read_phase(origin, ",
        "unit/phases/test_act.py",
        ("test_a_worker_that_lost_its_phase_cannot_claim",),
        scenario="effect",
    ),
    Protection(
        "P1",
        "a grant that has ended lets nothing run alone",
        f"{LUA}/claim_execution.lua",
        "if ungranted then",
        "if false then",
        "unit/runtime/test_earned_autonomy.py",
        ("test_a_grant_that_is_revoked_between_decide_and_act_is_not_used",),
    ),
    Protection(
        "P1",
        "a grant covers only the calls of its record",
        "shared/boyd/phases/gate.py",
        "    if outside or grant is not record.grant:\n",
        "    if grant is not record.grant:\n",
        "unit/runtime/test_earned_scope.py",
        ("test_a_grant_is_limited_to_the_target_and_the_params_of_its_record",),
    ),
    Protection(
        "P1",
        "what a person has approved is not executed while its case waits",
        f"{LUA}/claim_execution.lua",
        "if held_out > 0 then",
        "if false then",
        "unit/runtime/test_case_waits.py",
        ("test_an_approved_case_that_ends_by_itself_is_well_without_the_action",),
        scenario="cases",
    ),
    Protection(
        "P1",
        "the end of a wait is counted once",
        f"{LUA}/end_wait.lua",
        "if not case or case.id ~= id or case.ended then",
        "if not case or case.id ~= id then",
        "unit/runtime/test_case_waits.py",
        ("test_the_end_of_a_wait_counts_once_however_often_it_is_recorded",),
    ),
    Protection(
        "P1",
        "an outcome is counted once",
        f"{LUA}/lib/count_outcome.lua",
        "if not have[3] or have[4] then",
        "if not have[3] then",
        "unit/runtime/test_earned_autonomy.py",
        ("test_an_outcome_is_counted_once_however_often_it_is_recorded",),
    ),
    Protection(
        "P1",
        "only the worker that holds its job may claim",
        f"{LUA}/claim_execution.lua",
        "executes(origin, options.attempt, options.entered, ",
        "redis.call('HMGET', origin, 'executionState', 'executionAttempt', 'executionBy', ",
        "unit/runtime/test_approvals.py",
        ("test_a_worker_that_lost_the_execution_cannot_claim_it",),
        scenario="approval",
    ),
    Protection(
        "P1",
        "a claim is exclusive while it is renewed",
        f"{LUA}/claim_execution.lua",
        "if left > 0 then",
        "if false then",
        "integration/test_store.py",
        ("test_a_hundred_claims_give_one_right_to_execute",),
        scenario="effect",
    ),
    Protection(
        "P1",
        "what has ended is in the ledger and not executed again",
        f"{LUA}/claim_execution.lua",
        "if state == 'succeeded' or state == 'failed' or state == 'running' and have[4] then",
        "if false then",
        "unit/phases/test_act.py",
        ("test_an_execution_happens_once_however_often_it_is_asked_for",),
        scenario="effect",
    ),
    Protection(
        "P1",
        "what was started and lost is unknown, not executed again",
        f"{LUA}/claim_execution.lua",
        "if state and (not options.idempotent or cancelled",
        "if state and (cancelled",
        "unit/phases/test_act.py",
        ("test_an_execution_whose_worker_was_lost_is_unknown_and_not_repeated",),
        scenario="effect",
    ),
    Protection(
        "P1",
        "after a restart of Redis an unclaimed decision is unknown",
        f"{LUA}/claim_execution.lua",
        "and server ~= server_id() then",
        "and false then",
        "unit/phases/test_act.py",
        ("test_a_restart_of_redis_leaves_no_doubt_unsaid",),
        scenario="failover",
    ),
    Protection(
        "P1",
        "what is refused after a restart of Redis is unknown, too",
        f"{LUA}/forgo_execution.lua",
        "if fields[#fields] ~= server_id() then",
        "if false then",
        "unit/phases/test_act.py",
        ("test_a_refusal_after_a_restart_of_redis_hides_no_earlier_execution",),
    ),
    # What is executed has the ledger, too; what an endpoint does has only this.
    Protection(
        "P1",
        "a job is taken once, however often its message comes",
        f"{LUA}/enter_job.lua",
        "if have[1] ~= 'queued' or have[2]",
        "if have[2]",
        "unit/runtime/test_calls.py",
        ("test_a_message_that_comes_twice_has_an_endpoint_asked_once",),
        scenario="proposers",
    ),
    Protection(
        "P1",
        "after a restart of Redis a tool that may have been called is not called again",
        f"{LUA}/write_log.lua",
        "restarted and 1 or 0",
        "0",
        "unit/llm/test_interruptions.py",
        ("test_a_call_that_redis_may_have_forgotten_is_repeated_only_if_it_reads",),
    ),
    # P2: what began ends.
    Protection(
        "P2",
        "a phase that raises ends its iteration",
        f"{RUNTIME}/iteration.py",
        "                return self._fail(entry, ctx, error)\n",
        "                return None\n",
        "unit/runtime/test_ending.py",
        ("test_a_phase_that_raises_fails_the_iteration_and_keeps_what_was_there",),
    ),
    Protection(
        "P2",
        "a phase that loses every worker is given up",
        f"{LUA}/retry_phase.lua",
        "if attempts >= tonumber(max_attempts) then",
        "if false then",
        "unit/runtime/test_sweeper.py",
        ("test_a_phase_that_loses_every_worker_fails_its_iteration",),
    ),
    Protection(
        "P2",
        "the sweeper ends an iteration that nobody can complete",
        f"{RUNTIME}/sweeper.py",
        "        if retry.finish:\n",
        "        if False:\n",
        "unit/runtime/test_sweeper.py",
        ("test_complete_that_loses_every_worker_is_ended_by_the_sweeper",),
    ),
    Protection(
        "P2",
        "a record that cannot be read ends as well",
        f"{RUNTIME}/ending.py",
        "    except (ValueError, KeyError):\n        return record.unreadable_result(",
        "    except ZeroDivisionError:\n        return record.unreadable_result(",
        "unit/runtime/test_sweeper.py",
        ("test_a_record_that_cannot_be_read_is_ended_all_the_same",),
    ),
    Protection(
        "P2",
        "an observer that takes down two workers is left out",
        f"{RUNTIME}/sweeper.py",
        "        if stuck.attempt > 1:\n",
        "        if False:\n",
        "unit/runtime/test_sweeper.py",
        ("test_an_observer_that_takes_its_worker_with_it_twice_is_given_up",),
    ),
    Protection(
        "P2",
        "a deadline of a clock that stepped back is looked at",
        f"{LUA}/take_due.lua",
        "ZRANGEBYSCORE', due, '(' .. latest, '+inf'",
        "ZRANGEBYSCORE', due, '+inf', '+inf'",
        "unit/runtime/test_sweeper.py",
        ("test_a_deadline_far_ahead_is_one_of_a_clock_that_stepped_back",),
    ),
    Protection(
        "P2",
        "a sweep notices a step of the clock that is shorter than deadlines",
        f"{LUA}/take_due.lua",
        "(swept - now > tonumber(lease) and tonumber(lease) or 600000)",
        "600000",
        "unit/runtime/test_clock_steps.py",
        ("test_a_message_lost_before_the_step_is_sent_again_as_always",),
    ),
    # P3: a lost worker or message costs seconds.
    Protection(
        "P3",
        "what begins is due for the sweeper in the same step",
        f"{LUA}/lib/begin_iteration.lua",
        "  redis.call('ZADD', due, now + resend_after, 'phase')\n",
        "",
        "unit/runtime/test_sweeper.py",
        ("test_the_sweeper_resends_every_lost_message",),
        scenario="effect",
        backed_by="each sweep compares what is in flight with what is due",
    ),
    Protection(
        "P3",
        "the next phase is due in the step that leaves the last",
        f"{LUA}/lib/move_on.lua",
        "  redis.call('ZADD', due, now + wait, 'phase')\n",
        "",
        "unit/runtime/test_sweeper.py",
        ("test_the_next_phase_is_due_in_the_step_that_leaves_the_last",),
        scenario="effect",
    ),
    Protection(
        "P3",
        "the message of a phase is sent again",
        f"{RUNTIME}/sweeper.py",
        "        if served and retry.send:\n",
        "        if False:\n",
        "unit/runtime/test_sweeper.py",
        ("test_a_phase_whose_message_was_lost_is_sent_again_under_the_same_epoch",),
        scenario="effect",
    ),
    Protection(
        "P3",
        "the message of a job is sent again",
        "shared/boyd/runtime/jobs/job_runner.py",
        "        elif self._engine.fleet.serving(stuck.queue or queues.ACT):\n",
        "        elif False:\n",
        "unit/runtime/test_approvals.py",
        ("test_a_message_that_was_lost_is_sent_again",),
        scenario="approval",
    ),
    Protection(
        "P3",
        "a job that lost its worker while executing needs no other worker to end",
        "shared/boyd/runtime/jobs/job_runner.py",
        "            over = handler.handle_loss(id, stuck) if stuck.attempt > 1 else None\n",
        "            over = None\n",
        "unit/runtime/test_lost_claims.py",
        ("test_an_approved_action_whose_worker_is_gone_is_unknown_although_no_worker_acts",),
        scenario="approval",
    ),
    Protection(
        "P3",
        "an act phase that lost its worker while executing needs no other worker to end",
        f"{RUNTIME}/sweeper.py",
        "        if retry.epoch > 1 and self._end_if_acted(retry):\n",
        "        if False:\n",
        "unit/runtime/test_lost_claims.py",
        ("test_an_iteration_whose_act_phase_lost_its_only_worker_ends_with_an_unknown_outcome",),
        scenario="effect",
    ),
    Protection(
        "P3",
        "a claim from before the clock stepped back lapses",
        f"{LUA}/lib/lease_left.lua",
        "  if left > longest then\n",
        "  if false then\n",
        "unit/runtime/test_clock_steps.py",
        ("test_a_worker_lost_before_the_step_holds_its_iteration_for_a_lease",),
    ),
    Protection(
        "P3",
        "a wait from before the clock stepped back begins again",
        f"{LUA}/retry_job.lua",
        "math.min(left, wait or left)",
        "left",
        "unit/runtime/test_clock_steps.py",
        ("test_a_verification_waits_no_longer_than_its_wait",),
    ),
    Protection(
        "P3",
        "leases are renewed while the work goes on",
        f"{RUNTIME}/leases.py",
        "            for key, lease in leases:\n",
        "            for key, lease in leases[:0]:\n",
        "unit/runtime/test_leases.py",
        ("test_a_lease_is_renewed_while_the_work_goes_on",),
        scenario="effect",
    ),
    Protection(
        "P3",
        "what hangs loses its lease",
        f"{RUNTIME}/leases.py",
        "if time.monotonic() > lease.until or not self._renew(lease, failed):",
        "if not self._renew(lease, failed):",
        "unit/runtime/test_leases.py",
        ("test_the_lease_of_hanging_work_is_not_renewed",),
    ),
    Protection(
        "P3",
        "after a silence the living keep what they hold",
        f"{LUA}/take_due.lua",
        "if away == '1' or math.abs(now - swept) > tonumber(lease) then",
        "if false then",
        "unit/runtime/test_sweeper.py",
        ("test_after_a_silence_the_living_get_a_lease_before_anything_is_taken",),
        scenario="approval",
    ),
    # P4: an observer costs its own time limit.
    Protection(
        "P4",
        "what overruns its time limit is given up",
        f"{PHASES}/time_limit.py",
        "self._running.pop(index, None) if deadline <= now else None",
        "None",
        "unit/phases/test_observe.py",
        ("test_a_bounded_call_never_waits_longer_than_its_limit",),
    ),
    Protection(
        "P4",
        "threads that were given up are replaced",
        f"{PHASES}/time_limit.py",
        "                self._grow(self._give_up())\n",
        "                self._grow(0 * self._give_up())\n",
        "unit/phases/test_observe.py",
        ("test_a_crew_replaces_the_threads_that_it_gives_up",),
    ),
    Protection(
        "P4",
        "a bundle has no more threads than its width",
        f"{PHASES}/time_limit.py",
        "given_up += self._width - 1",
        "given_up += len(self._calls)",
        "unit/phases/test_observe.py",
        ("test_a_crew_never_has_more_threads_than_its_width",),
    ),
    Protection(
        "P4",
        "an observer that calls exit costs only itself",
        "shared/boyd/plugin/plugin_boundary.py",
        "        raise Exited(error) from error\n    except KeyboardInterrupt as error:\n",
        "        raise\n    except KeyboardInterrupt as error:\n",
        "unit/phases/test_observe.py",
        ("test_an_observer_that_calls_exit_costs_only_itself",),
    ),
    Protection(
        "P1",
        "an action that SIGTERM to a process group cuts off is unknown",
        f"{WORKER}/worker.py",
        "    plugin_boundary.is_process_ending = terminate_handler_fired\n",
        "",
        "integration/test_act_workers.py",
        ("test_an_action_that_sigterm_to_the_group_cuts_off_is_unknown",),
    ),
    Protection(
        "P4",
        "a strategy that calls exit costs only itself",
        "shared/boyd/plugin/plugin_boundary.py",
        "        raise Exited(error) from error\n    except KeyboardInterrupt",
        "        raise\n    except KeyboardInterrupt",
        "unit/plugin/test_plugin_functions.py",
        ("test_errors_of_strategies_hooks_and_actions_are_reported_by_type",),
    ),
    Protection(
        "P21",
        "a coroutine of a guard blocks",
        "shared/boyd/plugin/components.py",
        "        if inspect.isawaitable(answer) or inspect.isasyncgen(answer):\n",
        "        if False:\n",
        "unit/plugin/test_plugin_functions.py",
        ("test_a_guard_that_returns_a_coroutine_blocks_the_action",),
    ),
    Protection(
        "P4",
        "a worker with too many hung threads restarts",
        f"{WORKER}/maintenance.py",
        'restarting", hung, limit)\n            end_process()\n',
        'restarting", hung, limit)\n',
        "integration/test_misbehaving_parts.py",
        ("test_a_worker_with_too_many_hung_observers_restarts_itself",),
    ),
    Protection(
        "P4",
        "a worker in which every step fails restarts",
        f"{WORKER}/maintenance.py",
        "        if self._failures >= MAX_FAILURES:\n",
        "        if False:\n",
        "integration/test_misbehaving_parts.py",
        ("test_a_worker_in_which_a_plugin_broke_a_module_restarts_itself",),
    ),
    Protection(
        "P4",
        "a process with too many open files restarts",
        f"{WORKER}/maintenance.py",
        "        elif _lacks_descriptors():\n",
        "        elif False:\n",
        "integration/test_misbehaving_parts.py",
        ("test_a_process_in_which_plugins_leave_too_many_files_open_restarts_itself",),
    ),
    Protection(
        "P4",
        "a worker without the thread of its heartbeats restarts",
        f"{WORKER}/maintenance.py",
        "            end_process()\n            raise\n",
        "            raise\n",
        "unit/worker/test_maintenance.py",
        ("test_a_process_ends_with_its_periodic_task",),
    ),
    # P5: acknowledged is stored.
    Protection(
        "P5",
        "a run is stored before it is acknowledged",
        f"{API}/routes/run_routes.py",
        "        run = agent.launcher.submit_run(body, ctx.actor, ctx.idempotent_id()).run\n",
        "        import threading, types\n        from boyd.models import utc_now\n"
        "        stored = (body, ctx.actor, ctx.idempotent_id())\n"
        "        threading.Timer(1, agent.launcher.submit_run, stored).start()\n"
        "        kept = {'id': stored[2], 'status': 'pending', 'created_at': utc_now()}\n"
        "        run = types.SimpleNamespace(**kept)\n",
        "unit/api/test_runs.py",
        ("test_everything_that_was_sent_is_kept",),
    ),
    Protection(
        "P5",
        "an approval is due in the step that acknowledges it",
        f"{LUA}/resolve_approval.lua",
        "  schedule_job('approval:' .. id, now + options.resend_after)\n",
        "",
        "unit/runtime/test_approvals.py",
        ("test_a_message_that_was_lost_is_sent_again",),
        scenario="approval",
    ),
    Protection(
        "P5",
        "the Redis of boyd up writes down every change",
        "shared/boyd/embedded/redis_server.py",
        '"appendonly yes"',
        '"appendonly no"',
        "integration/test_embedded.py",
        ("TestRedis::test_it_is_set_up_to_keep_everything",),
    ),
    # P6: one outcome.
    Protection(
        "P6",
        "a preview that says something else is another version of its item",
        f"{LUA}/store_preview.lua",
        "redis.call('HINCRBY', approval, 'version', 1)\n",
        "",
        "unit/api/test_previews.py",
        ("test_approving_an_outdated_preview_is_refused",),
    ),
    Protection(
        "P6",
        "a question gives nobody else's request its own name",
        f"{LUA}/propose_action.lua",
        "if options.runs == '' and options.asked_by ~= '' then\n",
        "if options.asked_by ~= '' then\n",
        "unit/agent/test_policies.py",
        ("test_a_run_that_meets_a_pending_item_does_not_make_its_submitter_a_requester",),
    ),
    Protection(
        "P6",
        "nobody is asked to allow an undo that has been done",
        f"{LUA}/submit_call.lua",
        "  if why then\n",
        "  if false then\n",
        "unit/runtime/test_rollbacks.py",
        ("test_an_execution_already_rolled_back_is_not_proposed_again",),
    ),
    Protection(
        "P6",
        "only what is pending can be resolved",
        f"{LUA}/resolve_approval.lua",
        "if status ~= 'pending' or not redis.call('ZSCORE', approvals_pending, id) then\n",
        "if false then\n",
        "integration/test_store.py",
        ("test_a_hundred_resolvers_have_one_winner",),
        scenario="approval",
    ),
    Protection(
        "P6",
        "the clock of Redis expires it, though nobody has looked",
        f"{LUA}/resolve_approval.lua",
        "if overdue(id) then",
        "if false then",
        "unit/runtime/test_approvals.py",
        ("test_an_item_past_its_deadline_cannot_be_approved_although_nobody_purged",),
        scenario="approval",
    ),
    Protection(
        "P6",
        "cancelling its run does not withdraw what has expired",
        f"{LUA}/cancel_run.lua",
        " or overdue(approval_id) then",
        " then",
        "unit/runtime/test_runs.py",
        ("test_an_item_past_its_deadline_has_expired_and_is_not_withdrawn",),
        scenario="approval",
    ),
    Protection(
        "P6",
        "a step is not executed once its procedure was cancelled, whoever approves it then",
        f"{LUA}/claim_execution.lua",
        "job[4] or is_given_up(job[6]), job[5]",
        "job[4], job[5]",
        "unit/runtime/test_procedures.py",
        ("test_a_step_that_is_approved_after_a_cancellation_is_not_executed",),
        scenario="consent",
    ),
    Protection(
        "P1",
        "no target is executed once its procedure was cancelled, whoever approves it then",
        f"{LUA}/claim_execution.lua",
        " or string.match(waiting or '', '^target:%S+')",
        "",
        "unit/runtime/test_waves.py",
        ("test_a_target_that_is_approved_after_a_cancellation_is_not_executed",),
        scenario="consent",
    ),
    Protection(
        "P1",
        "a step is undone that was approved after the worker was lost that had asked",
        "shared/boyd/runtime/procedures/interruptions.py",
        "if execution and (item := approvals.item_proposed_by(execution)):",
        "if execution and (item := None):",
        "unit/runtime/test_procedures.py",
        ("test_a_step_that_was_approved_is_undone_although_the_worker_that_asked_was_lost",),
        scenario="consent",
    ),
    Protection(
        "P6",
        "no target is executed once its procedure was cancelled while a wave is being opened",
        f"{LUA}/open_wave.lua",
        "if entry[4] and fields.mode == 'forth' then",
        "if false then",
        "unit/runtime/test_waves.py",
        ("test_a_cancellation_while_a_wave_is_being_opened_executes_no_target",),
        scenario="waves",
    ),
    Protection(
        "P6",
        "one principal counts once",
        f"{LUA}/resolve_approval.lua",
        "if have[15] then",
        "if false then",
        "unit/agent/test_policies.py",
        ("test_two_approvals_by_one_principal_count_once",),
        scenario="approval",
    ),
    Protection(
        "P6",
        "what a person has denied is not asked for again",
        f"{PHASES}/phase_context.py",
        'hold.kind != "denied":',
        "True:",
        "unit/runtime/test_resolved_problems.py",
        ("test_a_denied_action_is_not_asked_for_again_while_its_problem_lasts",),
    ),
    Protection(
        "P6",
        "what is denied while an iteration decides is not asked for by it",
        f"{LUA}/propose_action.lua",
        "if from_loop and read_hold(options.action, options.target, '') == 'denied' then",
        "if false then",
        "unit/runtime/test_resolved_problems.py",
        ("test_a_denial_while_an_iteration_decides_keeps_it_from_asking_again",),
    ),
    Protection(
        "P6",
        "a denial holds while its symptoms last",
        f"{LUA}/lib/symptoms.lua",
        "lasts = lasts or now[text]",
        "lasts = lasts",
        "unit/runtime/test_resolved_problems.py",
        ("test_a_denied_action_is_not_asked_for_again_while_its_problem_lasts",),
    ),
    Protection(
        "P6",
        "a denial holds no longer than its symptoms last",
        f"{LUA}/resolve_approval.lua",
        "symptoms = lasting, by",
        "by",
        "unit/runtime/test_resolved_problems.py",
        ("test_a_denied_action_is_asked_for_again_when_its_problem_comes_back",),
    ),
    Protection(
        "P6",
        "a denial does not take the place of a suspension",
        f"{LUA}/resolve_approval.lua",
        "redis.call('EXISTS', held) == 0",
        "true",
        "unit/runtime/test_resolved_problems.py",
        ("test_a_denial_leaves_a_suspension_as_it_is",),
    ),
    # P7: one iteration for each slot.
    Protection(
        "P7",
        "a slot is claimed once",
        f"{LUA}/trigger_iteration.lua",
        "if last == slot or passed then",
        "if false then",
        "unit/runtime/test_iterations.py",
        ("test_a_slot_starts_at_most_one_iteration",),
        scenario="slots",
    ),
    Protection(
        "P7",
        "a slot that is over starts nothing",
        f"{LUA}/trigger_iteration.lua",
        "if now >= slot + slot_length",
        "if false",
        "unit/runtime/test_iterations.py",
        ("test_a_slot_that_is_over_is_skipped",),
        scenario="slots",
    ),
    Protection(
        "P7",
        "a clock that stepped back does not stop the ticks",
        f"{LUA}/trigger_iteration.lua",
        " and claimed <= now + 10000",
        "",
        "unit/runtime/test_iterations.py",
        ("test_a_clock_that_stepped_back_does_not_stop_the_ticks",),
    ),
    Protection(
        "P7",
        "beats that disagree on the offset keep whole slots between iterations",
        f"{LUA}/trigger_iteration.lua",
        "claimed + taken and",
        "claimed and",
        "unit/runtime/test_ticks.py",
        (
            "test_beats_that_disagree_on_the_offset_keep_whole_slots_between_iterations",
            "test_an_upgrade_to_offsets_runs_no_slot_twice_and_skips_at_most_one",
        ),
    ),
    # P8: Redis may be away.
    Protection(
        "P8",
        "nobody waits for an answer without end",
        "shared/boyd/store/server/connection.py",
        '"socket_timeout": timeout,',
        '"socket_timeout": None,',
        "unit/store/test_redis_url.py",
        ("test_sentinels_are_asked_with_time_limits_and_without_retries",),
    ),
    Protection(
        "P8",
        "a command is not repeated below who knows what that means",
        "shared/boyd/store/server/connection.py",
        '        "retry": Retry(NoBackoff(), 0),\n    }\n',
        '        "retry": Retry(NoBackoff(), 3),\n    }\n',
        "unit/store/test_redis_url.py",
        ("test_a_server_that_says_nothing_is_asked_once",),
    ),
    Protection(
        "P8",
        "a server that takes no writes any more is left",
        "shared/boyd/store/server/refusals.py",
        "                if not _refuses(error):\n",
        "                if True:\n",
        "faults/test_failover.py",
        ("test_a_demoted_master_is_left",),
    ),
    Protection(
        "P8",
        "a worker that cannot consume starts its consumer again",
        "shared/boyd/messaging/celery_app.py",
        '    "socket_timeout": 15,\n',
        "",
        "faults/test_failover.py",
        ("test_a_worker_that_hears_nothing_from_its_broker_consumes_again",),
    ),
    Protection(
        "P8",
        "a lease is renewed again after an outage",
        f"{RUNTIME}/leases.py",
        "            return True\n",
        "            return False\n",
        "unit/runtime/test_leases.py",
        ("test_a_lease_is_renewed_again_after_an_attempt_failed",),
        scenario="effect",
    ),
    Protection(
        "P8",
        "the pulse of a worker outlives an outage",
        f"{WORKER}/maintenance.py",
        "        except StoreError as error:\n            self._report(False, error)\n"
        "        except Exception:\n",
        "        except ZeroDivisionError:\n",
        "unit/worker/test_maintenance.py",
        ("test_a_periodic_task_outlives_an_error",),
        scenario="slots",
    ),
    # P9: fencing.
    Protection(
        "P9",
        "the epoch of a phase fences who was taken for lost",
        f"{LUA}/lib/owns_phase.lua",
        " and have[2] == epoch",
        "",
        "unit/phases/test_act.py",
        ("test_a_worker_that_lost_its_phase_cannot_claim",),
        scenario="effect",
        backed_by="only who has entered a phase may leave it",
    ),
    Protection(
        "P9",
        "only who has entered a phase may leave it",
        f"{LUA}/lib/owns_phase.lua",
        " and have[4] == worker",
        "",
        "unit/runtime/test_sweeper.py",
        ("test_a_phase_is_left_only_by_who_has_entered_it",),
        backed_by="the epoch of a phase fences who was taken for lost",
    ),
    Protection(
        "P9",
        "a phase is entered once under each epoch",
        f"{LUA}/enter_phase.lua",
        " or have[4] then",
        " then",
        "integration/test_store.py",
        ("test_a_hundred_workers_enter_a_phase_once",),
        scenario="effect",
    ),
    Protection(
        "P9",
        "a worker that goes on has entered the next phase",
        f"{LUA}/lib/move_on.lua",
        "    fields[#fields + 1] = 'entered'\n    fields[#fields + 1] = successor\n",
        "",
        "unit/runtime/test_iterations.py",
        ("test_a_message_does_not_enter_the_phase_that_a_worker_has_gone_on_with",),
        scenario="effect",
    ),
    Protection(
        "P9",
        "a batch is completed under its attempt only",
        f"{LUA}/complete_batch.lua",
        "current ~= attempt or ",
        "",
        "unit/runtime/test_sweeper.py",
        ("test_a_batch_is_completed_only_under_its_attempt",),
        scenario="slots",
        backed_by="only who has entered a batch may complete it",
    ),
    Protection(
        "P9",
        "only who has entered a batch may complete it",
        f"{LUA}/complete_batch.lua",
        " or (entered or '') ~= worker then",
        " then",
        "unit/runtime/test_sweeper.py",
        ("test_a_batch_is_completed_only_under_its_attempt",),
        backed_by="a batch is completed under its attempt only",
    ),
    Protection(
        "P9",
        "a job that was given to another cannot be ended late",
        f"{LUA}/leave_job.lua",
        "if not gives_up and not executes(job, attempt, worker) then",
        "if false then",
        "unit/runtime/test_approvals.py",
        ("test_a_worker_that_comes_back_after_the_sweeper_gave_up_is_refused",),
        scenario="approval",
    ),
    Protection(
        "P9",
        "a late result does not change the ledger",
        f"{LUA}/finish_execution.lua",
        "if have[1] ~= 'running' or have[2] ~= token then",
        "if false then",
        "unit/phases/test_act.py",
        ("test_a_late_result_does_not_change_the_recorded_one",),
        scenario="effect",
    ),
    # P10: SIGTERM drains.
    Protection(
        "P10",
        "a worker that is told to stop ends what it has begun",
        f"{WORKER}/worker.py",
        "    def ready(**_: Any) -> None:\n",
        "    def ready(**_: Any) -> None:\n        signal.signal(signal.SIGTERM, signal.SIG_DFL)\n",
        "faults/test_promises.py",
        ("test_a_stopping_worker_finishes_its_action",),
    ),
    Protection(
        "P10",
        "a worker that is told to stop takes no further step",
        f"{WORKER}/agent_host.py",
        '!= "threads" or self.is_draining:',
        '!= "threads":',
        "unit/worker/test_next_steps.py",
        ("test_threads_go_on_with_the_next_step_until_their_worker_stops",),
    ),
    Protection(
        "P10",
        "a worker that stops says so, and nobody waits for it",
        f"{WORKER}/maintenance.py",
        "            self._store.fleet.leave(self._host.name)\n",
        "            pass\n",
        "integration/test_workers.py",
        ("test_a_stopped_worker_exits_cleanly_and_leaves_the_fleet",),
    ),
    Protection(
        "P10",
        "an API process answers what it has begun",
        f"{API}/http/server.py",
        "while self._busy() and time.monotonic() < deadline:",
        "while False:",
        "unit/api/test_server.py",
        ("test_a_stopping_server_answers_the_request_in_flight",),
    ),
    Protection(
        "P10",
        "what still runs elsewhere is put back",
        f"{RUNTIME}/iteration.py",
        "                self._iterations.put_back(entry, running.seconds + PUT_BACK_MARGIN)\n",
        "",
        "unit/phases/test_act.py",
        ("test_while_the_first_worker_still_executes_its_phase_is_put_back",),
        scenario="effect",
    ),
    # P11: bad input.
    Protection(
        "P11",
        "what an observer returns is validated",
        f"{PHASES}/observe.py",
        "        return [Observation.model_validate(_fields_of(item, now)) for item in items]\n",
        "        return items\n",
        "unit/phases/test_observe.py",
        ("test_an_observation_made_without_validation_is_validated",),
    ),
    Protection(
        "P11",
        "what an observer returns has a limit",
        f"{PHASES}/observe.py",
        "    if len(text) > max_bytes:\n",
        "    if False:\n",
        "unit/phases/test_observe.py",
        ("test_an_observer_that_returns_too_much_is_left_out",),
    ),
    Protection(
        "P11",
        "what an action returns has a limit",
        f"{PHASES}/action_call.py",
        "    if size <= MAX_RESULT:\n",
        "    if True:\n",
        "unit/phases/test_act.py",
        ("test_an_output_too_large_to_keep_is_left_out_and_the_action_has_succeeded",),
    ),
    Protection(
        "P11",
        "an action whose sandbox cannot be enforced is not claimed",
        f"{PHASES}/act.py",
        "        if reason := sandbox_obstacle(self.ctx, self.action):\n",
        "        if reason := None:\n",
        "unit/sandbox/test_sandboxed_actions.py",
        ("test_an_action_whose_sandbox_cannot_be_enforced_does_not_run_and_says_why",),
    ),
    Protection(
        "P11",
        "violations of a sandbox suspend the action",
        f"{LUA}/finish_execution.lua",
        "if violates then\n  count_violation(execution, violation)\n",
        "if violates then\n",
        "unit/sandbox/test_sandboxed_actions.py",
        (
            "test_repeated_violations_suspend_the_action_on_all_targets",
            "test_a_suspension_and_each_violation_are_in_the_audit_trail",
        ),
    ),
    Protection(
        "P11",
        "what could not be read back is not stored",
        "shared/boyd/models/base.py",
        '    return f"it nests deeper than {MAX_DEPTH} levels"\n',
        "    return None\n",
        "unit/phases/test_act.py",
        ("test_output_nested_too_deeply_to_be_read_back_is_reported_as_an_error",),
    ),
    # P12: bounded.
    Protection(
        "P12",
        "the history of iterations is capped",
        f"{LUA}/finish_iteration.lua",
        "if over > 0 then",
        "if false then",
        "unit/runtime/test_ending.py",
        ("test_history_is_capped_by_count",),
    ),
    Protection(
        "P12",
        "the history of approvals is capped",
        f"{LUA}/lib/settle_approval.lua",
        "  if over > 0 then",
        "  if false then",
        "unit/store/test_paging.py",
        ("test_history_is_capped_by_count_and_age",),
    ),
    Protection(
        "P12",
        "finished runs are capped",
        f"{LUA}/lib/settle_run.lua",
        "  if over > 0 then",
        "  if false then",
        "unit/runtime/test_runs.py",
        ("test_finished_runs_are_pruned_by_count_and_live_ones_never",),
    ),
    Protection(
        "P12",
        "the ledger forgets after its time",
        f"{LUA}/claim_execution.lua",
        "redis.call('PEXPIRE', execution, options.keep)\nlist(",
        "list(",
        "integration/test_store.py",
        ("test_nothing_stays_without_a_bound",),
    ),
    Protection(
        "P12",
        "the list of executions forgets what the ledger forgets",
        f"{LUA}/claim_execution.lua",
        "redis.pcall('ZREMRANGEBYSCORE', executions, '-inf', now - options.keep)",
        "",
        "unit/api/test_executions.py",
        ("test_the_list_forgets_what_the_ledger_forgets",),
    ),
    Protection(
        "P12",
        "the stream of events is trimmed",
        f"{LUA}/lib/emit.lua",
        "'MAXLEN', '~', 1000, ",
        "",
        "integration/test_store.py",
        ("test_the_stream_of_events_is_trimmed",),
    ),
    Protection(
        "P12",
        "no more runs wait than there is room for",
        f"{LUA}/submit_run.lua",
        "if redis.call('ZCARD', runs_pending) >= tonumber(most) then",
        "if false then",
        "unit/api/test_runs.py",
        ("test_a_full_queue_of_runs_refuses_more_with_the_time_to_retry",),
    ),
    Protection(
        "P22",
        "what is kept for a principal has a budget",
        "api/boyd_api/http/request_context.py",
        "        if wait:\n            detail",
        "        if False:\n            detail",
        "unit/api/test_storage_budget.py",
        ("test_calls_of_a_principal_are_refused_beyond_its_budget",),
    ),
    # P13: two releases.
    Protection(
        "P13",
        "unknown fields of JSON are passed over",
        "shared/boyd/models/base.py",
        'return cls.model_validate_json(text, extra="ignore")',
        "return cls.model_validate_json(text)",
        "unit/phases/test_observe.py",
        ("test_fields_of_another_release_are_passed_over",),
    ),
    Protection(
        "P13",
        "unknown fields inside of hashes are passed over",
        "shared/boyd/store/hashes.py",
        'return kind.model_validate(values, extra="ignore")',
        "return kind.model_validate(values)",
        "unit/runtime/test_runs.py",
        ("test_unknown_fields_of_a_later_release_in_a_run_are_ignored",),
    ),
    Protection(
        "P13",
        "unknown fields of observations are passed over",
        f"{PHASES}/observe.py",
        'return _observations.validate_json(text, extra="ignore")',
        "return _observations.validate_json(text)",
        "unit/phases/test_observe.py",
        ("test_observations_with_unknown_fields_of_a_later_release_are_read",),
    ),
    Protection(
        "P13",
        "a job of a later release is left to its workers",
        "shared/boyd/runtime/jobs/job_runner.py",
        "            return  # from a later release, whose workers recover it\n",
        "            raise LookupError(kind)\n",
        "unit/runtime/test_sweeper.py",
        ("test_a_job_of_a_later_release_is_left_to_its_own_workers",),
    ),
    # P14: nobody acts without authority.
    Protection(
        "P14",
        "every route asks for a key",
        f"{API}/http/auth.py",
        "    if not services.settings.api.allow_unauthenticated:\n",
        "    if False:\n",
        "unit/api/test_auth.py",
        ("test_without_a_key_no_route_answers",),
    ),
    Protection(
        "P14",
        "every route asks for its scope",
        f"{API}/http/auth.py",
        "    if route.scope is not None and not key.allows(route.scope):\n",
        "    if False:\n",
        "unit/api/test_auth.py",
        ("test_without_the_scope_no_route_answers",),
    ),
    Protection(
        "P14",
        "the secret of a key has to be right",
        "shared/boyd/store/api_keys.py",
        "(key is None or not hmac.compare_digest(key.hash, digest))",
        "(key is None)",
        "unit/store/test_api_keys.py",
        ("test_any_other_text_is_unknown",),
    ),
    Protection(
        "P14",
        "a key for one agent sees no other",
        f"{API}/http/services.py",
        "for name, e in self.agents().items() if key is None or key.sees(name)}",
        "for name, e in self.agents().items()}",
        "unit/api/test_auth.py",
        ("test_a_key_for_another_agent_does_nothing_here",),
    ),
    Protection(
        "P14",
        "no assistant has the rights of a person",
        f"{API}/mcp/mcp_server.py",
        "            if http.key is not None and http.key.person:\n",
        "            if False:\n",
        "unit/api/test_assistants.py",
        ("test_keys_of_persons_are_refused_with_the_reason",),
    ),
    Protection(
        "P14",
        "an assistant has the tools of its scopes",
        f"{API}/mcp/mcp_server.py",
        "[tool for tool in self.tools if request.allows(tool.scope)]",
        "self.tools",
        "unit/api/test_assistants.py",
        ("test_a_key_sees_the_tools_of_its_scopes",),
    ),
    Protection(
        "P14",
        "the task of an assistant is its own",
        f"{API}/mcp/assistant_tasks.py",
        " or call.actor.principal != ctx.actor.principal:\n",
        ":\n",
        "unit/api/test_assistants.py",
        ("test_the_tasks_of_others_are_unknown",),
    ),
    Protection(
        "P14",
        "no hook lets the proposal of an assistant run alone",
        f"{RUNTIME}/jobs/action_jobs.py",
        "    if request.proposal.by_person:\n",
        "    if False:\n",
        "unit/api/test_assistants.py",
        ("test_no_hook_of_the_agent_lets_a_proposal_run_alone",),
    ),
    Protection(
        "P14",
        "only a person approves the proposal of an assistant",
        f"{PHASES}/proposals.py",
        'policy.patched({"person": True}) if terms.by_person else policy',
        "policy",
        "unit/api/test_assistants.py",
        ("test_a_proposal_waits_for_a_person_even_if_the_action_runs_alone",),
    ),
    Protection(
        "P14",
        "what is executed is what was approved",
        f"{RUNTIME}/jobs/action_jobs.py",
        "        if fingerprint(item) != item.fingerprint:\n",
        "        if False:\n",
        "unit/runtime/test_approvals.py",
        ("test_params_changed_after_the_approval_are_not_executed",),
    ),
    Protection(
        "P14",
        "what is approved for a target is not done to another",
        f"{RUNTIME}/jobs/action_jobs.py",
        "if (target := action.final_target(item.params)) != item.target:",
        "if (target := item.target) is None:",
        "unit/runtime/test_approvals.py",
        ("test_an_approved_action_whose_target_is_another_now_is_refused",),
    ),
    Protection(
        "P14",
        "only signed approvals count, where there is a secret",
        f"{RUNTIME}/jobs/action_jobs.py",
        "return None if is_signed else _UNSIGNED",
        "return None",
        "unit/security/test_approval_signatures.py",
        ("test_nothing_is_executed_that_was_not_approved_as_it_is",),
    ),
    Protection(
        "P14",
        "a signature is of one principal",
        "shared/boyd/security/approval_signatures.py",
        "return list(votes.values())",
        "return [vote for vote in item.approvals if self._is_signed(item, vote)]",
        "unit/security/test_approval_signatures.py",
        ("test_one_principal_does_not_count_twice",),
    ),
    Protection(
        "P14",
        "who asks for an action may not approve it",
        f"{LUA}/resolve_approval.lua",
        "if not options.own and has_name(have[2], principal) then",
        "if false then",
        "unit/agent/test_policies.py",
        ("test_the_caller_of_an_action_may_not_approve_it",),
    ),
    Protection(
        "P14",
        "who the policy does not name may not approve",
        f"{RUNTIME}/approvals/approval_gateway.py",
        "not item.required.admits(answer.by):",
        "False:",
        "unit/agent/test_policies.py",
        ("test_the_policy_says_who_may_approve",),
    ),
    Protection(
        "P14",
        "a signed link that was altered is none",
        "shared/boyd/security/links.py",
        "self._serializer.loads(token)",
        "self._serializer.loads_unsafe(token)[1]",
        "unit/security/test_links.py",
        ("test_an_altered_or_foreign_token_is_no_link",),
    ),
    Protection(
        "P14",
        "a signed link cannot answer what needs a login",
        f"{RUNTIME}/approvals/approval_gateway.py",
        "(LinkProblem.EXPIRED, LinkProblem.LOGIN_NEEDED)",
        "(LinkProblem.EXPIRED,)",
        "unit/security/test_links.py",
        ("test_a_link_made_before_its_approval_became_grave_is_refused",),
    ),
    Protection(
        "P14",
        "a signed link ends with its deadline, by the clock of Redis",
        f"{LUA}/resolve_approval.lua",
        "if options.link_until and now >= options.link_until then",
        "if false then",
        "unit/security/test_links.py",
        ("test_a_link_ends_with_its_deadline_even_between_the_check_and_the_answer",),
    ),
    Protection(
        "P14",
        "a gated action waits for a person",
        f"{PHASES}/gate.py",
        'if mode == "human-only" or (mode != "auto" and _rule(rules, circumstances) is None):',
        "if False:",
        "unit/phases/test_act.py",
        ("test_the_gate",),
    ),
    Protection(
        "P14",
        "a callback goes to public addresses only",
        "shared/boyd/outbound/public_addresses.py",
        '    if not allow_private and _is_private(parts.hostname.rstrip(".")):\n',
        "    if False:\n",
        "unit/outbound/test_outbound.py",
        ("test_an_address_that_is_not_public_is_refused_however_it_is_written",),
    ),
    Protection(
        "P14",
        "what a name means is checked before it is connected to",
        "shared/boyd/outbound/guarded_session.py",
        "if allow_private else _Guarded(",
        "if True else _Guarded(",
        "integration/test_outbound.py",
        ("test_a_name_that_means_an_address_that_is_not_public_is_refused",),
    ),
    Protection(
        "P14",
        "a forged message cannot bring code with it",
        "shared/boyd/messaging/celery_app.py",
        'accept_content=["json"],',
        'accept_content=["json", "pickle"],',
        "integration/test_workers.py",
        ("test_a_message_that_would_run_when_it_is_read_is_not_read",),
    ),
    # P15: the loop waits for no act worker.
    Protection(
        "P15",
        "the sweeper takes the act phase from a queue that nobody serves",
        f"{RUNTIME}/sweeper.py",
        '        elif not served and retry.phase == "act" and queue != queues.LOOP:\n',
        "        elif False:\n",
        "unit/runtime/test_sweeper.py",
        ("test_an_action_that_no_worker_can_execute_fails_within_one_sweep",),
    ),
    Protection(
        "P15",
        "an approval is asked for on the queue of the loop",
        f"{RUNTIME}/iteration.py",
        '        if verdict.outcome == "asked":\n',
        "        if False:\n",
        "unit/runtime/test_sweeper.py",
        ("test_asking_for_an_approval_needs_no_worker_that_acts",),
    ),
    Protection(
        "P15",
        "complete does not go to the queue of the action",
        f"{LUA}/lib/move_on.lua",
        "    'queue', queue or '', 'ms:'",
        "    'ms:'",
        "unit/runtime/test_sweeper.py",
        ("test_complete_goes_to_the_loop_after_its_act_phase_was_given_up",),
    ),
    Protection(
        "P15",
        "who works on an abandoned iteration is shut out",
        f"{LUA}/abandon_iteration.lua",
        "local epoch = redis.call('HINCRBY', iteration, 'epoch', 1)\n",
        "local epoch = tonumber(have[3])\n",
        "unit/runtime/test_abandon.py",
        ("test_a_late_worker_cannot_renew_or_reenter_an_abandoned_complete_phase",),
    ),
    # P16: whatever Redis has lost, it is known again, and a freeze does not lie.
    Protection(
        "P16",
        "a claim reads the freeze of the deployment, not only that of its agent",
        f"{LUA}/lib/frozen.lua",
        "return reason_of(marks[2]) or reason_of(marks[3])",
        "return reason_of(marks[2])",
        "unit/phases/test_act.py",
        ("test_a_freeze_of_all_holds_for_an_agent_that_nobody_has_registered",),
        scenario="approval",
    ),
    Protection(
        "P16",
        "an agent whose registration was lost does not act",
        f"{LUA}/claim_execution.lua",
        "if options.unregistered then",
        "if false then",
        "unit/phases/test_act.py",
        ("test_an_agent_whose_registration_was_lost_does_not_act_until_it_is_known_again",),
    ),
    Protection(
        "P16",
        "a claim believes no copy of the freezes that was compared on another server",
        f"{LUA}/claim_execution.lua",
        "if not options.unregistered and not is_confirmed(options.agent) then",
        "if false then",
        "unit/store/test_freeze_copy.py",
        ("test_a_copy_that_another_server_has_compared_is_not_believed",),
    ),
    Protection(
        "P16",
        "a claim whose answer was lost does not outlive a freeze",
        f"{LUA}/claim_execution.lua",
        "if repeats and not (cancelled or freeze or revocation) then",
        "if repeats then",
        "unit/store/test_freeze_copy.py",
        ("test_a_claim_whose_answer_was_lost_does_not_outlive_a_freeze",),
    ),
    Protection(
        "P16",
        "a comparison of the freezes that comes late undoes nothing",
        f"{LUA}/confirm_freezes.lua",
        "changed_at(marks[i + 1]) > changed_at(redis.call('HGET', freezes, marks[i]))",
        "marks[i]",
        "unit/store/test_freeze_copy.py",
        ("test_a_comparison_that_comes_late_does_not_undo_a_freeze",),
    ),
    Protection(
        "P16",
        "a freeze holds whatever a clock that was ahead has written to a copy",
        "shared/boyd/store/freezes.py",
        "            after = max(",
        "            after = 0 * max(",
        "unit/store/test_freeze_copy.py",
        ("test_a_freeze_holds_whatever_a_clock_ahead_has_written_to_a_copy",),
    ),
    Protection(
        "P16",
        "a heartbeat brings the copies what did not reach them",
        "shared/boyd/store/fleet.py",
        '        self.compared = compared if self._compare(info.agents) else ""\n',
        "",
        "unit/store/test_freeze_copy.py",
        (
            "test_a_freeze_that_only_a_copy_has_comes_back_with_the_heartbeats",
            "test_a_heartbeat_brings_the_copies_what_did_not_reach_them",
        ),
    ),
    Protection(
        "P16",
        "a process that joins makes the others read who is alive",
        f"{LUA}/lib/note_beat.lua",
        "if before < now - alive then",
        "if false then",
        "unit/store/test_fleet.py",
        ("test_heartbeats_read_the_others_only_after_one_has_joined_left_or_died",),
    ),
    Protection(
        "P16",
        "a heartbeat registers again what was lost",
        f"{LUA}/record_heartbeat.lua",
        "    lost[#lost + 1] = known[i]\n",
        "",
        "unit/store/test_fleet.py",
        ("test_a_heartbeat_registers_agents_again_that_redis_has_lost",),
    ),
    Protection(
        "P16",
        "a heartbeat registers again an agent that was retired although its process runs",
        f"{LUA}/register_agent.lua",
        "retired == '1' and 'retired ' or ''",
        "''",
        "unit/store/test_fleet.py",
        ("test_an_agent_that_was_retired_while_a_process_runs_it_is_registered_again",),
    ),
    Protection(
        "P16",
        "a freeze is not undone by one that was lifted on a server whose clock was ahead",
        f"{LUA}/record_heartbeat.lua",
        " and at > math.max(now, changed_at(mark)) then",
        " and false then",
        "unit/store/test_fleet.py",
        ("test_a_freeze_is_not_undone_by_one_that_a_clock_ahead_has_lifted",),
    ),
    Protection(
        "P16",
        "a heartbeat writes back a freeze that was lost",
        f"{LUA}/record_heartbeat.lua",
        "    redis.call('HSET', freezes, scope, ours)\n",
        "",
        "unit/store/test_fleet.py",
        ("test_a_process_restores_a_freeze_that_redis_has_lost",),
    ),
    Protection(
        "P16",
        "ids change with the server that may have lost what came last",
        f"{LUA}/lib/begin_iteration.lua",
        "if known.timeline and known.server == server then",
        "if known.timeline then",
        "unit/runtime/test_iterations.py",
        ("test_ids_change_with_the_server_that_may_have_lost_what_came_last",),
        scenario="failover",
    ),
    Protection(
        "P16",
        "an iteration goes on counting where the counter was lost",
        f"{LUA}/lib/begin_iteration.lua",
        "return whole_number(kept[1]) or 0",
        "return 0",
        "unit/runtime/test_iterations.py",
        ("test_an_iteration_goes_on_counting_where_only_the_counter_was_lost",),
    ),
    # P17: what was left halfway is finished or ended.
    Protection(
        "P17",
        "an outcome that cannot be audited is not taken for recorded",
        f"{LUA}/finish_execution.lua",
        "read_flight(flight_field(have[4], have[9]))\n",
        "redis.call('HSET', execution, 'state', state, 'result', result, 'endedAt', now_ms())\n",
        "unit/runtime/test_refused_commands.py",
        ("test_an_outcome_is_in_the_ledger_and_the_audit_or_in_neither",),
    ),
    Protection(
        "P17",
        "half an approval is joined by nobody",
        f"{LUA}/propose_action.lua",
        "local pending = status == 'pending' and",
        "local pending = found and",
        "unit/runtime/test_refused_commands.py",
        ("test_an_item_that_is_not_whole_is_joined_by_nobody",),
    ),
    Protection(
        "P17",
        "each sweep compares what is in flight with what is due",
        f"{LUA}/take_due.lua",
        "if not fits then",
        "if false then",
        "unit/runtime/test_repair.py",
        ("test_an_iteration_that_is_not_due_is_made_due",),
    ),
    Protection(
        "P17",
        "open batches are due and counted",
        f"{LUA}/lib/watch_batches.lua",
        "      if not redis.call('ZSCORE', due, batch) then\n",
        "      if false then\n",
        "unit/runtime/test_repair.py",
        ("test_batches_that_are_not_due_or_counted_wrong_end_the_phase_all_the_same",),
    ),
    Protection(
        "P17",
        "a script asks whether its keys have the right type before it writes",
        f"{LUA}/lib/expect.lua",
        "    if found ~= kind and found ~= 'none' then\n",
        "    if false then\n",
        "integration/test_all_or_nothing.py",
        ("test_each_script_does_all_or_nothing",),
    ),
    Protection(
        "P17",
        "a script asks whether its commands are permitted before it writes",
        "shared/boyd/store/server/scripts.py",
        "  if not redis.acl_check_cmd(command, KEYS[1], KEYS[1], KEYS[1]) then\n",
        "  if false then\n",
        "integration/test_all_or_nothing.py",
        ("test_each_script_does_all_or_nothing",),
    ),
    Protection(
        "P17",
        "an event that cannot be written stops nothing",
        f"{LUA}/lib/emit.lua",
        "  local reply = redis.pcall('XADD'",
        "  local reply = redis.call('XADD'",
        "unit/runtime/test_repair.py",
        ("test_an_event_that_cannot_be_written_stops_nothing_and_is_noted",),
    ),
    Protection(
        "P17",
        "an iteration that nobody will look after is told",
        "shared/boyd/health/agent_replies.py",
        "            return now - self.since > STUCK\n",
        "            return False\n",
        "unit/api/test_metrics.py",
        ("test_a_deployment_whose_iteration_stands_still_is_not_ready",),
    ),
    # P18: nothing holds the interpreter.
    Protection(
        "P18",
        "secrets are looked for in slices of a text",
        "shared/boyd/text/redaction.py",
        "pattern.search(text, at, border + _OVERLAP)",
        "pattern.search(text, at, len(text))",
        "unit/text/test_redaction.py",
        ("test_no_step_of_redaction_looks_at_more_than_a_slice",),
    ),
    Protection(
        "P18",
        "an import of Turtle has a limit of time",
        "shared/boyd_goals/knowledge/turtle.py",
        "request, MAX_SECONDS, MAX_MEMORY)",
        "request, 60.0, MAX_MEMORY)",
        "unit/goals/test_turtle.py",
        ("test_reading_that_takes_too_long_is_ended",),
    ),
    Protection(
        "P18",
        "JSON with too many values is not read",
        "shared/boyd/text/json_limits.py",
        "len(plain)) > most:\n        _check_outside",
        "len(plain)) > 1_000 * most:\n        _check_outside",
        "unit/text/test_json_limits.py",
        ("test_a_body_with_too_many_values_is_not_parsed",),
    ),
    # P19: one in flight.
    Protection(
        "P19",
        "an execution begins only when it is its turn, in whatever way it was ordered",
        f"{LUA}/claim_execution.lua",
        "local waits = too_early()",
        "local waits = nil",
        "unit/runtime/test_in_flight.py",
        (
            "test_a_call_waits_until_it_is_its_turn",
            "test_a_second_approval_is_executed_after_the_first",
            "test_a_rollback_waits_for_another_execution_on_its_target",
            "test_a_step_of_a_procedure_waits_for_its_turn",
            "test_the_loop_is_refused_what_has_begun_since_it_decided",
            "test_a_model_is_refused_an_action_that_is_in_flight",
            "test_a_proposal_of_an_assistant_waits_for_the_execution_in_flight",
        ),
        scenario="proposers",
    ),
    Protection(
        "P1",
        "no target of a step is begun after a restart of Redis, which may have forgotten it",
        f"{LUA}/lib/waves.lua",
        "wave.server ~= server_id() and wave.idempotent ~= '1'",
        "false",
        "unit/runtime/test_waves.py",
        ("test_a_restart_of_redis_halts_it_until_a_person_resumes_it",),
    ),
    Protection(
        "P1",
        "no target that no worker has begun is executed after its procedure was cancelled",
        f"{LUA}/lib/waves.lua",
        "redis.call('HSET', key(name), 'cancelled', 1)",
        "",
        "unit/runtime/test_waves.py",
        ("test_a_cancellation_executes_no_target_that_no_worker_has_begun",),
    ),
    Protection(
        "P10",
        "a target begins with a job of its own, whatever became of its last one",
        f"{LUA}/lib/waves.lua",
        "redis.call('DEL', key(name))",
        "",
        "unit/runtime/test_waves.py",
        ("test_a_target_that_begins_again_has_a_new_job",),
        scenario="waves",
    ),
    Protection(
        "P19",
        "a procedure is in flight until it has ended",
        f"{LUA}/lib/flight_stages.lua",
        "return is_open('procedure:' .. id) and 'running' or nil",
        "return nil",
        "unit/runtime/test_procedures.py",
        ("test_it_does_not_run_twice_on_one_target_at_a_time",),
    ),
    Protection(
        "P19",
        "what was approved is in flight before a worker takes it",
        f"{LUA}/resolve_approval.lua",
        "enter_flight(flight_field(have[4], have[16]), tonumber(have[17]), name, name)",
        "",
        "unit/runtime/test_in_flight.py",
        ("test_an_approved_action_that_waits_for_a_worker_is_not_proposed_again",),
    ),
    Protection(
        "P19",
        "what is being verified is in flight",
        f"{LUA}/lib/begin_verification.lua",
        "if not (plan and plan.hold) then",
        "if true then",
        "unit/runtime/test_in_flight.py",
        ("test_an_action_that_is_being_verified_is_not_proposed_again",),
        scenario="proposers",
    ),
    Protection(
        "P19",
        "what did harm is in flight until that is undone",
        f"{LUA}/record_effect.lua",
        "if known.verdict ~= 'worse' then",
        "if true then",
        "unit/runtime/test_in_flight.py",
        ("test_nothing_is_executed_between_harm_and_its_rollback",),
        scenario="proposers",
    ),
    Protection(
        "P19",
        "the loop does not ask for what was approved since it decided",
        f"{LUA}/propose_action.lua",
        "local other = options.in_flight and in_the_way(options.in_flight, {})",
        "local other = nil",
        "unit/runtime/test_in_flight.py",
        ("test_a_proposal_that_was_overtaken_by_an_approval_is_refused",),
    ),
    Protection(
        "P19",
        "no other strategy takes the place of what is running",
        "shared/boyd/phases/decide.py",
        "            if hold.kind in _IRREPLACEABLE:\n                return None\n",
        "",
        "unit/runtime/test_in_flight.py",
        ("test_nothing_takes_the_place_of_what_is_running",),
    ),
    Protection(
        "P19",
        "what is well already is not executed",
        "shared/boyd/phases/act.py",
        "        if self._is_checked_before() and (outcome := check_need(self.attempt, stored)):\n"
        "            return self._run_after_hooks(outcome)\n",
        "",
        "unit/runtime/test_check_before.py",
        (
            "test_an_action_on_a_thing_that_is_well_is_not_executed",
            "test_an_approval_of_an_unneeded_action_says_that_nothing_was_executed",
            "test_a_step_that_is_not_needed_is_skipped_and_not_undone",
        ),
    ),
    # P23: few at a time, and none after harm.
    Protection(
        "P23",
        "no more executions are in flight on all targets than the action allows",
        f"{LUA}/claim_execution.lua",
        "  if flight.everywhere then\n",
        "  if false then\n",
        "unit/runtime/test_in_flight_limit.py",
        (
            "test_approved_actions_wait_in_order_and_go_on_with_each_verdict",
            "test_a_call_waits_and_a_cancelled_one_makes_room",
            "test_a_model_is_refused_with_the_execution_in_its_way",
            "test_a_step_of_a_procedure_waits_for_its_turn",
        ),
    ),
    Protection(
        "P23",
        "the loop sees that as many executions as may be are in flight",
        "shared/boyd/store/in_flight.py",
        "        return _limit(holds[action], target) if action in holds else None\n",
        "        return None\n",
        "unit/runtime/test_in_flight_limit.py",
        ("test_the_loop_waits_when_as_many_as_may_be_are_in_flight_on_other_targets",),
    ),
    Protection(
        "P23",
        "a verdict makes room for the next execution",
        f"{LUA}/record_effect.lua",
        "  leave_flight(have[1], id)\n",
        "",
        "unit/runtime/test_in_flight_limit.py",
        ("test_approved_actions_wait_in_order_and_go_on_with_each_verdict",),
    ),
    Protection(
        "P23",
        "a fresh grant begins with one execution in flight",
        f"{LUA}/claim_execution.lua",
        "  places[#places].limit = math.min(flight.everywhere, granted.inFlight)\n",
        "",
        "unit/runtime/test_in_flight_limit.py",
        (
            "test_a_fresh_grant_doubles_what_may_be_in_flight_with_each_effective_batch",
            "test_a_canary_that_does_harm_ends_the_grant_and_stops_the_others",
        ),
    ),
    Protection(
        "P23",
        "a failure begins the batch of a grant again",
        f"{LUA}/lib/count_outcome.lua",
        "grant.proven = good and grant.proven + 1 or 0",
        "grant.proven = grant.proven + (good and 1 or 0)",
        "unit/runtime/test_in_flight_limit.py",
        ("test_a_failure_begins_the_batch_again",),
    ),
    Protection(
        "P23",
        "what was approved before harm is not executed after it",
        f"{LUA}/claim_execution.lua",
        "options.held and is_held or options.decided and is_overtaken",
        "options.held and is_held",
        "unit/runtime/test_in_flight_limit.py",
        (
            "test_harm_stops_what_was_approved_before_on_other_targets",
            "test_harm_stops_an_older_approval_on_the_same_target_as_well",
        ),
    ),
    Protection(
        "P23",
        "harm on one target stops the action on all",
        f"{LUA}/lib/hold.lua",
        "because == 'violations' or everywhere == 'stopped' or",
        "because == 'violations' or",
        "unit/runtime/test_in_flight_limit.py",
        ("test_the_loop_and_procedures_are_stopped_until_somebody_lifts_that",),
    ),
    Protection(
        "P23",
        "a hold after harm outlasts an execution that may never have begun",
        f"{LUA}/record_effect.lua",
        "have[7] == 'succeeded' and known.verdict == 'effective'",
        "known.verdict == 'effective'",
        "unit/runtime/test_verification.py",
        ("test_a_target_that_is_well_after_a_call_that_did_not_succeed_stays_held",),
    ),
    # P20: what is documented is what is tested.
    Protection(
        "P20",
        "the shipped users may send what Boyd sends",
        "deploy/redis/users.acl",
        " +getdel ",
        " ",
        "integration/test_acl.py",
        ("test_the_api_may_send_every_command_of_the_store",),
    ),
    Protection(
        "P20",
        "a proxy that serves Boyd below a path is told so",
        "api/boyd_api/app.py",
        "    check_prefix()\n",
        "",
        "unit/api/test_requests.py",
        ("test_a_proxy_that_serves_boyd_below_a_path_gets_an_error_that_says_so",),
    ),
    # P21: no component fails another one.
    Protection(
        "P21",
        "each function gets its own copies",
        "shared/boyd/plugin/components.py",
        "{name: _private_copy(values[name]) for name in self.takes}",
        "{name: values[name] for name in self.takes}",
        "unit/plugin/test_own_copies.py",
        ("test_changes_in_place_by_a_plugin_reach_nobody_else",),
    ),
    # P22: nobody uses up memory.
    Protection(
        "P22",
        "a freeze is stored also when Redis is full",
        f"{LUA}/set_freeze.lua",
        "redis.call('HDEL', freezes, '')\n",
        "",
        "integration/test_store.py",
        ("test_agents_are_frozen_also_when_redis_is_full",),
    ),
    Protection(
        "P22",
        "what clients leave unread is bounded",
        "api/boyd_api/http/connections.py",
        "        if unread <= BACKLOG:\n            return\n",
        "        return\n",
        "unit/api/test_server.py",
        ("test_connections_are_closed_when_their_clients_leave_too_much_unread",),
    ),
)


class Unfit(Exception):
    """The tests say nothing: they could not be run, or fail also with the protection."""


@dataclass(frozen=True)
class Copy:
    """A copy of the project, to take protections out of."""

    root: Path

    @classmethod
    def into(cls, folder: Path) -> Copy:
        """Make a copy in *folder*."""
        root = folder / "project"
        shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
        # Compiled code is checked by the content of its source: changes come within one second.
        for source in SOURCES:
            mode = PycInvalidationMode.CHECKED_HASH
            compileall.compile_dir(root / source, quiet=2, invalidation_mode=mode)
        return cls(root)

    def without(self, protection: Protection) -> str | None:
        """The first test that fails without that protection, if any does.

        Raises:
            Unfit: the tests could not be run.
        """
        path = self.root / protection.file
        whole = path.read_text()
        path.write_text(whole.replace(protection.old, protection.new))
        try:
            return self.failing(protection.nodes)
        finally:
            path.write_text(whole)

    def failing(self, nodes: Sequence[str]) -> str | None:
        """The first of those tests that fails, if any does.

        Raises:
            Unfit: they could not be run.
        """
        limits = ("--timeout", str(TEST_LIMIT), "--timeout-method=signal")
        command = [sys.executable, "-m", "pytest", "-xq", "--color=no", *limits, *nodes]
        try:
            done = self._run(command)
        except subprocess.TimeoutExpired:
            raise Unfit(f"they took longer than {LIMIT:g} s") from None
        match = re.search(r"^FAILED tests/(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        if done.returncode == 1 and match:
            return match[1]
        if done.returncode == 0:
            return None
        raise Unfit(f"they cannot be run:\n{(done.stdout + done.stderr)[-2000:]}")

    def check(self) -> None:
        """Make sure that what runs is the copy.

        Raises:
            Unfit: it is another.
        """
        code = "import boyd, boyd_api, boyd_worker as w; print(boyd.__file__, boyd_api.__file__, "
        done = self._run([sys.executable, "-c", f"{code} w.__file__)"])
        places = done.stdout.split()
        if len(places) != 3 or not all(place.startswith(str(self.root)) for place in places):
            raise Unfit(f"another project would be tested: {done.stdout}{done.stderr}")

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith("BOYD_")
        }
        environment |= {
            "PYTHONPATH": os.pathsep.join(str(self.root / source) for source in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What never comes is not waited for as long as on a busy machine.
            "TEST_PATIENCE": "2",
            # A test that has no Redis must not count as passed.
            "CI": "1",
        }
        return subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )


def misplacements(root: Path = PROJECT) -> list[str]:
    """The entries whose text is not in its file exactly once, with where it should be."""
    counts = [(protection, protection.count_in(root)) for protection in PROTECTIONS]
    return [
        f"{p.promise}, {p.what}: found {count} times, not once, in {p.file}: {p.old!r}"
        for p, count in counts
        if count != 1
    ]


def survivors(chosen: Sequence[Protection], processes: int = 1) -> list[Protection]:
    """Take out each of those protections in turn and say what came of it; those nobody missed.

    Raises:
        Unfit: the tests fail without any change.
    """
    missed = []
    with tempfile.TemporaryDirectory(prefix="protections-") as folder:
        copies: Queue[Copy] = Queue()
        for number in range(processes):
            copies.put(Copy.into(Path(folder) / str(number)))
        copy = copies.queue[0]
        copy.check()
        nodes = dict.fromkeys(node for protection in chosen for node in protection.nodes)
        fails = copy.failing(list(nodes))
        if fails:
            raise Unfit(f"{fails} fails without any change")
        print(f"{len(nodes)} tests pass with everything in place; taken out one at a time:\n")
        width = max(len(protection.what) for protection in chosen)
        with ThreadPoolExecutor(processes) as pool:
            verdicts = pool.map(partial(_try_without, copies), chosen)
            for protection, (failed, verdict) in zip(chosen, verdicts, strict=True):
                if not failed:
                    missed.append(protection)
                print(
                    f"{protection.promise:<4} {protection.what:<{width}}  → {verdict}", flush=True
                )
    return missed


def _try_without(copies: Queue[Copy], protection: Protection) -> tuple[bool, str]:
    """Take out a protection in a copy that nobody uses: whether a test fails, and what to say."""
    copy = copies.get()
    try:
        failed = copy.without(protection)
        return bool(failed), failed.partition("::")[2] if failed else "SURVIVED"
    except Unfit as error:
        return False, str(error)
    finally:
        copies.put(copy)


def main() -> None:
    """Show that every protection is missed by a test; the exit status is 1 when one is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="P6", help="those of some promises")
    parser.add_argument("--processes", type=int, default=3, help="how many are tried at once")
    parser.add_argument("--list", action="store_true", help="show the table and do nothing")
    arguments = parser.parse_args()
    chosen = [p for p in PROTECTIONS if not arguments.only or p.promise in arguments.only]
    if arguments.list:
        for protection in chosen:
            print(f"{protection.promise:<4} {protection.what}  ({protection.file})")
        return
    began = time.monotonic()
    wrong = misplacements()
    if wrong or not chosen:
        sys.exit("\n".join(wrong) or "there is no such promise")
    try:
        missed = survivors(chosen, arguments.processes)
    except Unfit as error:
        sys.exit(str(error))
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    noticed = f"{len(chosen) - len(missed)} of {len(chosen)} protections"
    print(f"\n{noticed} are missed by a test when they are taken out; {minutes} min {seconds} s")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
