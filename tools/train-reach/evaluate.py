# SPDX-License-Identifier: Apache-2.0
"""Success rates of a policy of the reaching task, all episodes side by side, in torch."""
import torch

import model
import task

EXECUTE = 5                     # actions of a chunk that are carried out
STEPS = 10                      # denoising steps


@torch.no_grad()
def run(dims, W, prompts, horizon, count, tag, beta, seed):
    """(success rate, mean steps of the successful episodes)."""
    generator = torch.Generator().manual_seed(seed)
    discs, points = task.place(generator, count)
    colors = torch.randint(0, 3, (count,), generator=generator)
    goals = discs[torch.arange(count), colors]
    close = (points - goals).norm(dim=1) < 0.3
    points = torch.where(close[:, None], (1 - goals).clamp(task.LOW, task.HIGH), points)
    done, steps = torch.zeros(count, dtype=torch.bool), torch.zeros(count)
    for _ in range(task.MAX_STEPS // EXECUTE):
        image = task.draw(points, discs).permute(0, 3, 1, 2).float() / 255 * 2 - 1
        tags = [tag] if beta == 1 else [tag, "none"]
        prefixes = [model.prefix(dims, W, image, *prompts.of(colors, torch.full_like(colors, task.TAG_NAMES.index(t))))
                for t in tags]
        noise = torch.randn(count, horizon, dims["ad"], generator=generator)
        chunk = model.sample(dims, W, prefixes, noise, STEPS, beta)[:, :, :2] * task.MAX_STEP
        for i in range(EXECUTE):
            points = torch.where(done[:, None], points, task.move(points, chunk[:, i]))
            steps += ~done
            done |= (points - goals).norm(dim=1) < task.REACHED
    return done.float().mean().item(), (steps[done].mean().item() if done.any() else 0.0)


def table(dims, W, prompts, horizon, episodes=200, seed=12345):
    """One row per way of asking, printed and returned."""
    rows = []
    for tag, beta in (("none", 1.0), ("positive", 1.0), ("positive", 1.5), ("positive", 2.0), ("negative", 1.0)):
        success, steps = run(dims, W, prompts, horizon, episodes, tag, beta, seed)
        rows.append({"tag": tag, "beta": beta, "success": round(success, 4), "mean_steps": round(steps, 1)})
        print(rows[-1], flush=True)
    return rows
