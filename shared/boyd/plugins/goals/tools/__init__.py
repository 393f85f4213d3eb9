"""The tools of an agent with goals: actions, each with what scoring must know of it."""
