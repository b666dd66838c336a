"""Figures of rounds, ratios against targets, tables as text and as Markdown."""
import statistics

from plan import GROUPS, TARGETS

MIB = 2**20


def steps_of(runs):
    return [second for run in runs for second in run["step_seconds"]]


def value(runs, quantity):
    """One figure of a variant's runs (all rounds, or a single one); None where there is none."""
    if not runs:
        return None
    if quantity == "tokens":
        return runs[0]["tokens_per_step"] / statistics.median(steps_of(runs))
    if quantity == "step":
        return statistics.median(steps_of(runs))
    if quantity == "rss":
        return max(run["peak_rss_bytes"] for run in runs)
    key = {"peak": "peak_fraction", "first_step": "exec_to_first_step_seconds", "planned": "planned_bytes"}[quantity]
    figures = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(figures) if figures else None


def combined(quantity, own, other):
    """A target's quantity: the variant's own, its ratio to the other's, or RSS saved over planned bytes saved."""
    if quantity == "saved":
        planned = value(other, "planned") - value(own, "planned")
        return (value(other, "rss") - value(own, "rss")) / planned if planned else float("nan")
    mine = value(own, quantity)
    return mine / value(other, quantity) if other else mine


def judge(target, rounds):
    """{value, low, high, reached} of a target; None when its runs are not there. rounds: [{variant: run}]."""
    rounds = [r for r in rounds if target.variant in r and (not target.other or target.other in r)]
    if not rounds:
        return None
    pick = lambda chosen, name: [r[name] for r in chosen] if name else []
    whole = combined(target.quantity, pick(rounds, target.variant), pick(rounds, target.other))
    single = [combined(target.quantity, pick([r], target.variant), pick([r], target.other)) for r in rounds]
    return dict(value=whole, low=min(single), high=max(single), rounds=len(rounds),
                reached=target.at_least <= whole <= target.at_most)


def bound(target):
    if target.at_least and target.at_most < float("inf"):
        return f"{target.at_least:g} to {target.at_most:g}"
    return f"at least {target.at_least:g}" if target.at_least else f"at most {target.at_most:g}"


def row_of(name, runs):
    """A variant's line: name, step, spread, tokens/s, share of peak, RSS, planned, exec to first step."""
    steps, number = steps_of(runs), lambda x, scale, digits: "" if not x else f"{x / scale:,.{digits}f}"
    step, spread, tokens = "", "", ""
    if len(steps) > 1:
        step, spread = f"{statistics.median(steps):.3f}", f"{min(steps):.3f} to {max(steps):.3f}"
        tokens = number(value(runs, "tokens"), 1, 0)
    peak = runs[0].get("peak_fraction") and value(runs, "peak")
    return [name, step, spread, str(len(steps)), tokens, f"{peak:.1%}" if peak and len(steps) > 1 else "", number(value(runs, "rss"), MIB, 0),
            number(value(runs, "planned"), MIB, 0), number(value(runs, "first_step"), 1, 2)]


COLUMNS = ["", "step s", "smallest to largest", "steps", "tokens/s", "of peak", "RSS MiB", "planned MiB", "first step s"]


def group_rows(rounds):
    names = list(dict.fromkeys(name for r in rounds for name in r))
    return [row_of(name, [r[name] for r in rounds if name in r]) for name in names]


def target_rows(groups):
    rows = []
    for target in TARGETS:
        found = judge(target, groups.get(target.group, []))
        if found:
            rows.append([target.text, f"{found['value']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}", bound(target),
                         "reached" if found["reached"] else "missed"])
    return rows


TARGET_COLUMNS = ["", "found", "rounds", "target", ""]


def text(columns, rows):
    rows = [columns, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows)


def markdown(columns, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(columns), line(["---", *["---:"] * (len(columns) - 1)]), *[line(row) for row in rows]])


def parts_rows(runs_of):
    """Where a step's time goes: one column a run, from Trireme's parts; runs_of: {title: run}."""
    names = [name for name in next(iter(runs_of.values()))["parts"] if name != "communication_hidden"]
    rows = []
    for name in [*names, "sum"]:
        row = [name.replace("_", " ")]
        for run in runs_of.values():
            part = sum(run["parts"][n] for n in names) if name == "sum" else run["parts"][name]
            row += [f"{part * 1e3:.1f}", f"{part / run['median_seconds']:.1%}"]
        rows.append(row)
    return [""] + [cell for title in runs_of for cell in (f"{title}, ms", "of the step")], rows


def whole(groups, table=text, heading="{}"):
    """Every group, the targets and the step's parts, as one text."""
    pieces = []
    for key, rounds in groups.items():
        pieces.append(heading.format(GROUPS[key].title if key in GROUPS else key) + f"\n\n{table(COLUMNS, group_rows(rounds))}")
    targets = target_rows(groups)
    if targets:
        pieces.append(heading.format("Targets") + f"\n\n{table(TARGET_COLUMNS, targets)}")
    parts = {title: groups[key][-1]["full_shard"] for title, key in (("bf16-mixed", "bf16"), ("32-true", "fp32"))
             if groups.get(key) and "parts" in groups[key][-1].get("full_shard", {})}
    if parts:
        pieces.append(heading.format("Where a step's time goes (full_shard)") + f"\n\n{table(*parts_rows(parts))}")
    return "\n\n".join(pieces)
