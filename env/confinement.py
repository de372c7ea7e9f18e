"""What the kernel itself forbids a worker: writing, starting programs, the network. Linux, by ctypes.

Two layers beside the authorizer, for the case that an error in SQLite runs foreign code: Landlock (kernel 5.13 on)
refuses every change to the file system and, from 6.7 on, TCP; seccomp refuses system calls that make sockets, programs
or traces of other processes. Reading files stays allowed: a worker is asked for any database. Where the kernel has
one of them not, ``confine`` says so, and the worker goes on without it.
"""

import ctypes
import platform
import struct
from contextlib import suppress

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
# Landlock's system calls have these numbers on every architecture.
CREATE_RULESET, RESTRICT_SELF = 444, 446
VERSION_FLAG = 1
# Rights on files by the version that knows them first: all but reading files (4) and folders (8).
RIGHTS = {1: (1 << 13) - 1 - 4 - 8, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
NETWORK_VERSION, NETWORK = 4, 3  # bind and connect with TCP

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # the refusal is EPERM
OTHER_NUMBERS = 0x40000000  # on x86_64 the numbers from here on are a second set of the same calls
# Audit's name of each architecture; then the calls with their numbers on both, None where one has it not.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
Numbers = dict[str, tuple[int | None, int | None]]
HOST: Numbers = {
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "listen": (50, 201), "connect": (42, 203),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265), "memfd_create": (319, 279),
}  # fmt: skip
CHANGES: Numbers = {
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "creat": (85, None), "link": (86, None), "linkat": (265, 37), "unlink": (87, None),
    "unlinkat": (263, 35), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "chmod": (90, None), "fchmodat": (268, 53), "chown": (92, None), "lchown": (94, None), "fchownat": (260, 54),
}  # fmt: skip
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # of the packet filter's language


def confine(writes: bool = False) -> dict[str, str]:
    """Restrict this thread and those that it starts; what came of each layer, by its name.

    ``writes``: a process that must write files keeps the right to.
    """
    found = {"landlock": "not on this system", "seccomp": "not on this system"}
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        found["landlock"] = "not used: this process writes files" if writes else landlock(library)
        found["seccomp"] = seccomp(library, HOST if writes else HOST | CHANGES)
    return found


def landlock(library: ctypes.CDLL) -> str:
    """Take all rights to change files, and to reach the network, from this thread."""
    library.syscall.restype = ctypes.c_long
    version = library.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)
    if version < 1:
        return "not in this kernel"
    files = sum(right for first, right in RIGHTS.items() if first <= version)
    network = NETWORK if version >= NETWORK_VERSION else 0
    rules = struct.pack("=QQ", files, network)[: 16 if network else 8]
    ruleset = library.syscall(CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0 or library.syscall(RESTRICT_SELF, ruleset, 0) < 0:
        return "refused by this kernel"
    return f"version {version}: no file can be changed" + (", no TCP" if network else "")


def seccomp(library: ctypes.CDLL, calls: Numbers) -> str:
    """Refuse system calls to this thread."""
    machine = platform.machine()
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        return f"not for {machine}"
    place = list(ARCHITECTURES).index(machine)
    numbers = [number for number in (each[place] for each in calls.values()) if number is not None]
    code = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    # Jumps are relative: from each comparison to the last instruction.
    tests = [(AT_LEAST, OTHER_NUMBERS), *((EQUAL, number) for number in numbers)]
    code += [(test, len(tests) - at, 0, number) for at, (test, number) in enumerate(tests)]
    code += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    if library.prctl(SET_SECCOMP, FILTER, head, 0, 0) != 0:
        return "refused by this kernel"
    return f"{len(numbers)} system calls refused"
