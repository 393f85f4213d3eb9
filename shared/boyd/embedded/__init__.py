"""What `boyd up` needs to run everything on one host: a Redis server and a supervisor.

    redis_server   a Redis or Valkey server on a free loopback port
    supervisor     keeps named children running and stops them in order
    child          what a child is, and one life of it
    death          a child never outlives its parent
    lock           one `boyd up` per state folder
    runtime        where the running one can be reached
    wakeup         signals as wake-ups of a waiting loop
    logs, files    log files; private folders and files

Everything here is meant for the main thread of a process that does nothing else. Import from the
modules: this one is empty, so that reading `runtime` does not load a Redis client.
"""
