"""The border to the kernels: the contract, its types, and which module keeps it here.

::

    engine ──► contract ◄── objects                  every name; the arrays and objects that cross the border
               loading ──► native, or twins          asked for by name, once a process

`twins` is a room of its own, below these three. What the engine needs for a type or a number stands in `objects` or is
asked of the module that was loaded. So nothing but `loading` and the tests imports a twin.
"""
