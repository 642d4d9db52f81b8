"""Training that can be interrupted and resumed: one loop for every task, on one device or under torchrun.

    with launched(options) as fabric:
        main, launch = fabric.global_rank == 0, launch_agents(fabric)
        with RunFolder("runs/x", config, main=main, launch=launch) as run:
            result = fit(model, objective, batches, options, run, fabric=fabric)

An `Objective` computes the loss and the validation, `Batches` yield the data; the loop is the same for all of them.
Import each name from its module: loading a run to predict does not import lightning-fabric.
"""
