"""The cutover from another loader: its tables are checked, taken over as they are, or compared with tables beside them.

`look` reads what the former loader noted, and compares it with the landing and the tables. `adopt` enters that in
ledger and log. `beside` loads the same runs into a schema of their own, and `compare` compares what both have loaded, run by
run.
"""

from manifest_platform.operations.cutover.adopt import Adopted, adopt
from manifest_platform.operations.cutover.beside import beside, register
from manifest_platform.operations.cutover.compare import Compared, compare
from manifest_platform.operations.cutover.look import Cutover, NothingToTakeOver, look

__all__ = ["Adopted", "Compared", "Cutover", "NothingToTakeOver", "adopt", "beside", "compare", "look", "register"]
