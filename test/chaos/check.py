print("no checker yet")
